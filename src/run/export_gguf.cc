#include "run/export_gguf.h"

#include "base/error.h"
#include "formats/gguf_forms.h"
#include "formats/gguf_tensors.h"
#include "run/aside_output.h"
#include "run/checkpoint.h"
#include "run/gguf_tokenizer.h"

namespace longshot {
namespace {

// llama.cpp's name for the type of most tensors: general.file_type.
uint32_t file_type(std::span<const GgufOutput> outputs) {
  GgmlType most = GgmlType::kF32;
  for (const GgufOutput& t : outputs)
    if (t.type != GgmlType::kF32) most = t.type;
  switch (most) {
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBF16:
      return 32;
    default:
      return 0;
  }
}

std::unique_ptr<Tokenizer> tokenizer_of(const fs::path& dir, const CheckpointInfo& info) {
  return info.tokenizer_file.empty() ? nullptr : load_tokenizer(dir / info.tokenizer_file);
}

// Adds its keys, or none's (null).
void describe_tokenizer(GgufKeys& keys, const Tokenizer* tokenizer, const ModelConfig& model, const std::string& run) {
  try {
    add_tokenizer(keys, tokenizer, model.vocab);
  } catch (const Error& e) {
    fail_usage("{}: {} Without a tokenizer the model can be exported all the same: --no-tokenizer", run, e.what());
  }
}

}  // namespace

GgufExported export_gguf(const GgufExport& request) {
  const fs::path dir = find_checkpoint(request.run);
  const std::string run = request.run.string();
  CheckedBeside checked(dir);
  const CheckpointInfo& info = checked.info();
  const ModelForm& form = fitting_form(gguf_forms(), info.model, request.family, run);
  const SourceTensors ours = source_tensors(std::make_shared<const Safetensors>(dir / kModelFile));
  std::vector<MadeTensor> theirs = make_theirs(ours, gguf_rules(form, info.model), info.model);
  const std::vector<GgufOutput> outputs = gguf_outputs(theirs, request.type);

  GgufKeys keys = gguf_keys(form, info.model);
  keys.add("general.file_type", file_type(outputs));
  if (request.type == GgmlType::kQ8_0) keys.add("general.quantization_version", uint32_t{2});
  const std::unique_ptr<Tokenizer> tokenizer = request.tokenizer ? tokenizer_of(dir, info) : nullptr;
  describe_tokenizer(keys, tokenizer.get(), info.model, run);

  AsideOutput out(request.out);
  write_gguf_tensors(out.path(), keys, theirs, outputs, request.watch);
  GgufExported done{.family = form.name, .bytes = fs::file_size(out.path())};
  checked.finish();
  out.publish_it();
  for (const SourceTensor& t : ours.all()) done.parameters += element_count(t.shape).value_or(0);
  if (tokenizer) done.tokenizer = tokenizer->name();
  return done;
}

}  // namespace longshot
