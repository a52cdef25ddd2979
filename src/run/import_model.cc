#include "run/import_model.h"

#include "base/error.h"
#include "formats/fairseq_model.h"
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

// As a run's config.toml has it.
std::string config_toml(ModelConfig config) {
  Options options;
  config.fields(options);
  return options.to_toml(false);
}

}  // namespace

ImportSummary write_imported(const ImportedModel& model, const RunDir& dir, const Watch& watch) {
  const ModelConfig& config = model.config;
  require(!model.tokenizer || model.tokenizer->vocab_size() <= config.vocab,
          "{}: its tokenizer has {} entries, the model embeddings for {}. Import without it: --no-tokenizer",
          model.origin, model.tokenizer ? model.tokenizer->vocab_size() : 0, config.vocab);
  ImportSummary summary{.family = {}, .config = config, .tokenizer_name = {}};
  for (const StreamedTensor& t : model.weights) {
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
  run.begin_at(0, 1);
  run.save(ImportedContent{.config = config,
                           .weights = model.weights,
                           .tokenizer = model.tokenizer.get(),
                           .step = model.step,
                           .watch = watch});
  run.write_config(config_toml(config));
  return summary;
}

ImportSummary import_hf(const fs::path& dir, const RunDir& run, const ImportOptions& options) {
  HfModel model = read_hf_model(dir);
  require_supported(*model.family, model.json);
  const SourceTensors tensors = open_hf_tensors(dir, options.watch.part(0, 0.1));
  if (model.family->settle) model.family->settle(tensors, model.config);
  const std::vector<MadeTensor> made =
      make_ours(tensors, model.family->rules(model.config), model.config, options.type);
  const ImportedModel imported{
      .origin = dir.string(),
      .config = model.config,
      .weights = streamed(made),
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
  const std::vector<MadeTensor> made = make_ours(tensors, gguf_rules(model.config), model.config, options.type);
  const ImportedModel imported{
      .origin = path.string(),
      .config = model.config,
      .weights = streamed(made),
      .tokenizer = options.tokenizer ? tokenizer_from([&] { return gguf_tokenizer(*file); }) : nullptr};
  ImportSummary summary = write_imported(imported, run, options.watch);
  summary.family = model.family->name;
  return summary;
}

ImportSummary import_fairseq(const fs::path& path, const RunDir& run, const ImportOptions& options) {
  const std::string name = path.string();
  const TorchFile file(name);
  require(FairseqCheckpoint::is_one(file),
          "{}: a PyTorch file, but not a checkpoint of fairseq's: it lacks model, cfg and args", name);
  require_usage(!options.type || options.type == DType::kF32, "{}: the weights of a fairseq checkpoint become f32",
                name);
  const FairseqCheckpoint checkpoint(file);
  checkpoint.verify(options.watch.part(0, 0.3));
  const ModelConfig config = model_config_of(checkpoint, options.position);
  ImportedModel imported{.origin = name,
                         .config = config,
                         .weights = weights_of(checkpoint, config),
                         .tokenizer = nullptr,
                         .step = checkpoint.config().updates};
  if (!options.dict.empty() && options.tokenizer) imported.tokenizer = load_tokenizer(options.dict);
  require(!imported.tokenizer || imported.tokenizer->vocab_size() == config.vocab,
          "{}: has {} words, the model {}. It must be the dict.txt the model was trained with.", options.dict,
          imported.tokenizer ? imported.tokenizer->vocab_size() : 0, config.vocab);
  ImportSummary summary = write_imported(imported, run, options.watch.part(0.3, 1));
  summary.family = "fairseq";
  summary.position_known = false;
  return summary;
}

ImportSummary import_model(const fs::path& source, const RunDir& run, const ImportOptions& options) {
  const auto whole = [&](auto import, const char* what) {
    require_usage(options.dict.empty(), "--dict is for fairseq's checkpoints; {} is {}", source.string(), what);
    return import(source, run, options);
  };
  if (is_hf_directory(source)) return whole(import_hf, "a Hugging Face directory");
  require(!fs::is_directory(source), "{}: no config.json in it. A directory to import is a Hugging Face model's.",
          source.string());
  if (Gguf::is_one(source)) return whole(import_gguf, "a GGUF file");
  return import_fairseq(source, run, options);
}

}  // namespace longshot
