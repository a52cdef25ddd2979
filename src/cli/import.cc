#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "formats/fairseq_model.h"
#include "run/run_writer.h"

namespace longshot {
namespace {

class ImportCommand : public Command {
 public:
  Arguments arguments() const override { return {"FILE.pt", 1, 1}; }

  void options(Options& o) override {
    std::vector<std::string> methods;
    for (const PositionMethod* method : position_methods()) methods.push_back(method->name);
    o.add("out", out_, "directory of the run to make");
    o.add("dict", dict_, "fairseq's dict.txt; without it the run has no tokenizer and scores token sets only");
    o.add("position", position_, methods,
          "method the model was trained with; the file cannot tell alibi from sinusoidal");
  }

  int run() override {
    require_usage(!out_.empty(), "longshot import needs --out RUN, the directory of the run to make");
    const TorchFile file(args[0]);
    require(FairseqCheckpoint::is_one(file),
            "{}: a PyTorch file, but not a checkpoint of fairseq's: it lacks model, cfg and args", args[0]);
    const FairseqCheckpoint checkpoint(file);
    checkpoint.verify();
    const ModelConfig config = model_config_of(checkpoint, position_);
    const std::unique_ptr<Tokenizer> tokenizer = dict_.empty() ? nullptr : load_tokenizer(dict_);
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
    run.write_config(toml_of(config));
    fmt::print("{}: {} parameters, {} layers, dim {}, {} heads, {} words, trained at length {}\n", printable(args[0]),
               checkpoint.parameter_count(), config.layers, config.dim, config.heads, config.vocab, config.length);
    fmt::print("position {}{}\nwritten to {}\n", position_,
               position_ == "alibi" ? " (the default: --position sinusoidal if it was trained with that)" : "",
               printable(out_));
    return 0;
  }

 private:
  static std::string toml_of(ModelConfig config) {
    Options options;
    config.fields(options);
    return options.to_toml(false);
  }

  std::string out_, dict_, position_ = "alibi";
};

}  // namespace

std::unique_ptr<Command> make_import_command() { return std::make_unique<ImportCommand>(); }

}  // namespace longshot
