#include "base/error.h"
#include "formats/fairseq.h"
#include "memory_file.h"

using namespace longshot;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory(data, size);
  try {
    const TorchFile file(memory.path());
    const FairseqCheckpoint checkpoint(file);
    checkpoint.verify_ties();
    for (const FairseqTensor& t : checkpoint.tensors()) {
      std::vector<float> out(static_cast<size_t>(*element_count(t.shape)));
      copy_to_float(t, out);
    }
  } catch (const Error&) {
  }
  return 0;
}
