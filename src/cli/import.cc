#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "run/import_model.h"

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
    catch_stop_signals();
    Progress progress;
    const ImportSummary made = import_model(args[0], RunDir(out_),
                                            {.type = dtype_of(type_),
                                             .tokenizer = tokenizer_,
                                             .watch = watched(progress, "importing " + printable(args[0])),
                                             .dict = dict_,
                                             .position = position_});
    progress.clear();
    print(made);
    return 0;
  }

 private:
  void print(const ImportSummary& made) const {
    const ModelConfig& c = made.config;
    fmt::print("{}: {}, {} parameters, {} layers, dim {}, {} heads, {} words, trained at length {}\n",
               printable(args[0]), made.family, made.parameters, c.layers, c.dim, c.heads, c.vocab, c.length);
    fmt::print("position {}{}; {}\nwritten to {} ({} bytes of weights)\n", c.position,
               made.position_known || c.position != "alibi"
                   ? ""
                   : " (the default: --position sinusoidal if it was trained with that)",
               made.tokenizer_name.empty()
                   ? "no tokenizer"
                   : fmt::format("{} tokenizer, {} entries", made.tokenizer_name, made.tokenizer_size),
               printable(out_), made.bytes);
  }

  std::string out_, dict_, position_ = "alibi";
  StoredType type_ = StoredType::kKeep;
  bool tokenizer_ = true;
};

}  // namespace

std::unique_ptr<Command> make_import_command() { return std::make_unique<ImportCommand>(); }

}  // namespace longshot
