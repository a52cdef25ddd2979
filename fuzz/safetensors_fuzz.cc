#include "base/error.h"
#include "formats/safetensors.h"
#include "memory_file.h"

using namespace longshot;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory(data, size);
  try {
    const Safetensors file(memory.path());
    for (const NamedTensor& t : file.tensors()) {
      if (!is_floating(t.dtype)) continue;
      std::vector<float> out(t.bytes.size() / dtype_size(t.dtype));
      file.read(t.name, out);
    }
  } catch (const Error&) {
  }
  return 0;
}
