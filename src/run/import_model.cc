#include "run/import_model.h"

#include "base/error.h"
#include "formats/gguf_families.h"
#include "formats/gguf_tensors.h"
#include "formats/hf_directory.h"
#include "run/gguf_tokenizer.h"
#include "run/run_writer.h"

namespace longshot {
namespace {

template <class Load>
std::unique_ptr<Tokenizer> tokenizer_from(Load load) {
  try {
    return load();
  } catch (const Error& e) {
    fail("{} Without a tokenizer the model can be imported all the same: --no-tokenizer", e.what());
  }
}

}  // namespace

std::string config_toml(ModelConfig config) {
  Options options;
  config.fields(options);
  return options.to_toml(false);
}

ImportSummary write_imported(const ImportedModel& model, const RunDir& dir, const Watch& watch) {
  const ModelConfig& config = model.config;
  require(!model.tokenizer || model.tokenizer->vocab_size() <= config.vocab,
          "{}: its tokenizer has {} entries, the model embeddings for {}. Import without it: --no-tokenizer",
          model.origin, model.tokenizer ? model.tokenizer->vocab_size() : 0, config.vocab);
  ImportSummary summary{.family = {}, .config = config, .tokenizer_name = {}};
  for (const MadeTensor& t : model.tensors) {
    const int64_t count = element_count(t.shape).value_or(0);
    summary.parameters += count;
    summary.bytes += static_cast<uint64_t>(count) * dtype_size(t.dtype);
  }
  if (model.tokenizer) {
    summary.tokenizer_name = model.tokenizer->name();
    summary.tokenizer_size = model.tokenizer->vocab_size();
  }
  RunWriter run{dir};
  require_usage(run.checkpoints().empty(), "{}: holds a run already. Give another --out.", dir.path().string());
  run.begin_at(0);
  run.save(ImportedContent{.config = config,
                           .weights = streamed(model.tensors),
                           .tokenizer = model.tokenizer.get(),
                           .step = 0,
                           .watch = watch});
  run.write_config(config_toml(config));
  return summary;
}

ImportSummary import_hf(const fs::path& dir, const RunDir& run, const ImportOptions& options) {
  HfModel model = read_hf_model(dir);
  require_supported(*model.family, model.json);
  const SourceTensors tensors = open_hf_tensors(dir, options.watch.part(0, 0.1));
  if (model.family->settle) model.family->settle(tensors, model.config);
  const ImportedModel imported{
      .origin = dir.string(),
      .config = model.config,
      .tensors = make_ours(tensors, model.family->rules(model.config), model.config, options.type),
      .tokenizer = options.tokenizer ? tokenizer_from([&] { return load_tokenizer(dir); }) : nullptr};
  ImportSummary summary = write_imported(imported, run, options.watch.part(0.1, 1));
  summary.family = model.family->name;
  return summary;
}

ImportSummary import_gguf(const fs::path& path, const RunDir& run, const ImportOptions& options) {
  const auto file = std::make_shared<const Gguf>(path);
  const GgufModel model = read_gguf_model(*file);
  require_supported(model);
  const SourceTensors tensors = open_gguf_tensors(file);
  const ImportedModel imported{
      .origin = path.string(),
      .config = model.config,
      .tensors = make_ours(tensors, gguf_rules(model.config), model.config, options.type),
      .tokenizer = options.tokenizer ? tokenizer_from([&] { return gguf_tokenizer(*file); }) : nullptr};
  ImportSummary summary = write_imported(imported, run, options.watch);
  summary.family = model.family->name;
  return summary;
}

}  // namespace longshot
