#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "run/export_gguf.h"
#include "run/export_hf.h"

namespace longshot {
namespace {

enum class Format { kHf, kGguf };
constexpr Choice<Format> kFormats[] = {{"hf", Format::kHf}, {"gguf", Format::kGguf}};

enum class Type { kKeep, kF32, kF16, kBf16, kQ8 };
constexpr Choice<Type> kTypes[] = {
    {"keep", Type::kKeep}, {"f32", Type::kF32}, {"f16", Type::kF16}, {"bf16", Type::kBf16}, {"q8_0", Type::kQ8}};

// What both kinds of file call the type; none: as the run stores them.
std::optional<GgmlType> ggml_type(Type type) {
  switch (type) {
    case Type::kF32:
      return GgmlType::kF32;
    case Type::kF16:
      return GgmlType::kF16;
    case Type::kBf16:
      return GgmlType::kBF16;
    case Type::kQ8:
      return GgmlType::kQ8_0;
    case Type::kKeep:
      break;
  }
  return {};
}

class ExportCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("format", format_, kFormats,
          "what to write: hf, a directory that Hugging Face's transformers reads; gguf, a file for llama.cpp");
    o.add("out", out_, "where to; must not be there yet");
    o.add("type", type_, kTypes, "of the weights; keep: as the run stores them; q8_0: in GGUF alone");
    o.add("family", family_,
          "hf: bloom, mpt, gpt_neox, llama or gpt2; gguf: mpt, bloom, gptneox, llama or gpt2; none: the first that can "
          "hold the model");
    o.add("tokenizer", tokenizer_, "gguf: take the tokenizer along; one that llama.cpp cannot have is refused");
  }

  int run() override {
    require_usage(!out_.empty(), "longshot export needs --out, the directory or the file to make");
    catch_stop_signals();
    return format_ == Format::kHf ? write_hf() : write_gguf();
  }

 private:
  int write_hf() const {
    require_usage(type_ != Type::kQ8, "--type q8_0 goes with --format gguf");
    require_usage(tokenizer_, "--no-tokenizer goes with --format gguf");
    const std::optional<GgmlType> type = ggml_type(type_);
    Progress progress;
    const HfExported done = export_hf({.run = args[0],
                                       .out = out_,
                                       .family = family_,
                                       .type = type ? plain_dtype(*type) : std::nullopt,
                                       .watch = watched(progress, "exporting")});
    progress.clear();
    print(done.parameters, done.family, done.bytes);
    if (done.tokenizer.empty()) {
      fmt::print(
          "no tokenizer: none travelled with the run, or it is of a kind (byte, dict.txt) that others do not read\n");
    }
    return 0;
  }

  int write_gguf() const {
    Progress progress;
    const GgufExported done = export_gguf({.run = args[0],
                                           .out = out_,
                                           .family = family_,
                                           .type = ggml_type(type_),
                                           .tokenizer = tokenizer_,
                                           .watch = watched(progress, "exporting")});
    progress.clear();
    print(done.parameters, done.family, done.bytes);
    if (done.tokenizer.empty()) fmt::print("no tokenizer in it\n");
    return 0;
  }

  void print(int64_t parameters, const std::string& family, uint64_t bytes) const {
    fmt::print("{}: {} parameters as {}, {} bytes\n", printable(out_), parameters, family, bytes);
  }

  Format format_ = Format::kHf;
  Type type_ = Type::kKeep;
  std::string out_, family_;
  bool tokenizer_ = true;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace longshot
