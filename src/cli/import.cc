#include "base/error.h"
#include "base/printable.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "formats/fairseq_model.h"
#include "formats/gguf.h"
#include "formats/hf_directory.h"
#include "run/import_model.h"
#include "run/run_writer.h"

namespace longshot {
namespace {

enum class StoredType { kKeep, kF32, kF16, kBF16 };
constexpr Choice<StoredType> kStoredTypes[] = {
    {"keep", StoredType::kKeep}, {"f32", StoredType::kF32}, {"f16", StoredType::kF16}, {"bf16", StoredType::kBF16}};

std::optional<DType> dtype_of(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return DType::kF32;
    case StoredType::kF16:
      return DType::kF16;
    case StoredType::kBF16:
      return DType::kBF16;
    default:
      return {};
  }
}

class ImportCommand : public Command {
 public:
  Arguments arguments() const override { return {"SOURCE", 1, 1}; }

  void options(Options& o) override {
    std::vector<std::string> methods;
    for (const PositionMethod* method : position_methods()) methods.push_back(method->name);
    o.add("out", out_, "directory of the run to make");
    o.add("type", type_, kStoredTypes,
          "of the weights in it: keep, as they are stored; quantised ones of a GGUF file and fairseq's become f32");
    o.add("tokenizer", tokenizer_, "take the tokenizer along; without one the run scores token sets only");
    o.add("dict", dict_, "fairseq's dict.txt; without it the run has no tokenizer and scores token sets only");
    o.add("position", position_, methods,
          "method a fairseq model was trained with; the file cannot tell alibi from sinusoidal");
  }

  int run() override {
    require_usage(!out_.empty(), "longshot import needs --out RUN, the directory of the run to make");
    if (is_hf_directory(args[0])) return import_whole(import_hf, "a Hugging Face directory");
    require(!fs::is_directory(args[0]), "{}: no config.json in it. A directory to import is a Hugging Face model's.",
            args[0]);
    if (Gguf::is_one(args[0])) return import_whole(import_gguf, "a GGUF file");
    return import_fairseq();
  }

 private:
  using Import = ImportSummary (*)(const fs::path&, const RunDir&, const ImportOptions&);

  // A source that says what its model is.
  int import_whole(Import import, const char* what) const {
    require_usage(dict_.empty(), "--dict is for fairseq's checkpoints; {} is {}", args[0], what);
    catch_stop_signals();
    Progress progress;
    const ImportSummary made = import(args[0], RunDir(out_),
                                      {.type = dtype_of(type_),
                                       .tokenizer = tokenizer_,
                                       .watch = watched(progress, "importing " + printable(args[0]))});
    progress.clear();
    print(made);
    return 0;
  }

  void print(const ImportSummary& made) const {
    const ModelConfig& c = made.config;
    fmt::print("{}: {}, {} parameters, {} layers, dim {}, {} heads, {} words, trained at length {}\n",
               printable(args[0]), made.family, made.parameters, c.layers, c.dim, c.heads, c.vocab, c.length);
    fmt::print("position {}; {}\nwritten to {} ({} bytes of weights)\n", c.position,
               made.tokenizer_name.empty()
                   ? "no tokenizer"
                   : fmt::format("{} tokenizer, {} entries", made.tokenizer_name, made.tokenizer_size),
               printable(out_), made.bytes);
  }

  int import_fairseq() const {
    const TorchFile file(args[0]);
    require(FairseqCheckpoint::is_one(file),
            "{}: a PyTorch file, but not a checkpoint of fairseq's: it lacks model, cfg and args", args[0]);
    require_usage(type_ == StoredType::kKeep || type_ == StoredType::kF32,
                  "--type {}: the weights of a fairseq checkpoint become f32", name_of(kStoredTypes, type_));
    const FairseqCheckpoint checkpoint(file);
    checkpoint.verify();
    const ModelConfig config = model_config_of(checkpoint, position_);
    const std::unique_ptr<Tokenizer> tokenizer = dict_.empty() || !tokenizer_ ? nullptr : load_tokenizer(dict_);
    require(!tokenizer || tokenizer->vocab_size() == config.vocab,
            "{}: has {} words, the model {}. It must be the dict.txt the model was trained with.", dict_,
            tokenizer ? tokenizer->vocab_size() : 0, config.vocab);

    Transformer model(config, false);
    import_weights(checkpoint, model);
    RunWriter run{RunDir(out_)};
    require_usage(run.checkpoints().empty(), "{}: holds a run already. Give another --out.", out_);
    run.begin_at(0);
    const int64_t step = checkpoint.config().updates;
    run.save({.model = model, .tokenizer = tokenizer.get(), .step = step}, 1);
    run.write_config(config_toml(config));
    fmt::print("{}: {} parameters, {} layers, dim {}, {} heads, {} words, trained at length {}\n", printable(args[0]),
               checkpoint.parameter_count(), config.layers, config.dim, config.heads, config.vocab, config.length);
    fmt::print("position {}{}\nwritten to {}\n", position_,
               position_ == "alibi" ? " (the default: --position sinusoidal if it was trained with that)" : "",
               printable(out_));
    return 0;
  }

  std::string out_, dict_, position_ = "alibi";
  StoredType type_ = StoredType::kKeep;
  bool tokenizer_ = true;
};

}  // namespace

std::unique_ptr<Command> make_import_command() { return std::make_unique<ImportCommand>(); }

}  // namespace longshot
