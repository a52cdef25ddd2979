#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "run/export_hf.h"

namespace longshot {
namespace {

enum class Format { kHf };
constexpr Choice<Format> kFormats[] = {{"hf", Format::kHf}};

enum class Type { kKeep, kF32, kF16, kBf16 };
constexpr Choice<Type> kTypes[] = {
    {"keep", Type::kKeep}, {"f32", Type::kF32}, {"f16", Type::kF16}, {"bf16", Type::kBf16}};

std::optional<DType> dtype_of(Type type) {
  switch (type) {
    case Type::kF32:
      return DType::kF32;
    case Type::kF16:
      return DType::kF16;
    case Type::kBf16:
      return DType::kBF16;
    case Type::kKeep:
      break;
  }
  return {};
}

class ExportCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("format", format_, kFormats, "what to write: hf, a directory that Hugging Face's transformers reads");
    o.add("out", out_, "where to; must not be there yet");
    o.add("type", type_, kTypes, "of the weights; keep: as the run stores them");
    o.add("family", family_, "bloom, mpt, gpt_neox, llama or gpt2; none: the first that can hold the model");
  }

  int run() override {
    require_usage(!out_.empty(), "longshot export needs --out, the directory to make");
    catch_stop_signals();
    Progress progress;
    const HfExported done = export_hf({.run = args[0],
                                       .out = out_,
                                       .family = family_,
                                       .type = dtype_of(type_),
                                       .watch = watched(progress, "exporting")});
    fmt::print("{}: {} parameters as {}, {} bytes\n", printable(out_), done.parameters, done.family, done.bytes);
    if (done.tokenizer.empty()) {
      fmt::print(
          "no tokenizer: none travelled with the run, or it is of a kind (byte, dict.txt) that others do not read\n");
    }
    return 0;
  }

 private:
  Format format_ = Format::kHf;
  Type type_ = Type::kKeep;
  std::string out_, family_;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace longshot
