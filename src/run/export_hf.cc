#include "run/export_hf.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/lock.h"
#include "base/version.h"
#include "formats/hf_forms.h"
#include "run/checkpoint.h"

namespace longshot {
namespace {

constexpr const char *kConfigFile = "config.json", *kGenerationFile = "generation_config.json",
                     *kTokenizerConfigFile = "tokenizer_config.json", *kCardFile = "README.md";
// Tokenizer files that other programs read as they are.
constexpr const char *kTokenizerFile = "tokenizer.json", *kPiecesFile = "tokenizer.model";

// OUT, written aside as OUT.tmp. Of what stands there only files are removed that an export writes.
class OutputDirectory {
 public:
  explicit OutputDirectory(const fs::path& out) : out_(without_slash(out)), aside_(out_), lock_(locked(out_)) {
    aside_ += kUnfinished;
    require_free();
    remove_aside();
    make_directories(aside_);
  }
  ~OutputDirectory() {
    std::error_code ignored;
    if (!published_) fs::remove_all(aside_, ignored);
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const fs::path& aside() const { return aside_; }
  void publish_all() {
    require_free();  // something may have been put there meanwhile
    publish(aside_, out_);
    published_ = true;
  }

 private:
  static fs::path without_slash(const fs::path& out) {
    const fs::path path = fs::weakly_canonical(fs::absolute(out));
    return path.filename().empty() ? path.parent_path() : path;
  }
  static DirectoryLock locked(const fs::path& out) {
    make_directories(out.parent_path());
    return DirectoryLock::beside(out);
  }
  void require_free() const {
    const fs::file_status status = fs::symlink_status(out_);
    require_usage(!fs::exists(status) || (fs::is_directory(status) && fs::is_empty(out_)),
                  "--out {}: is there already and is not replaced. Give another.", out_.string());
  }
  // What a killed export left.
  void remove_aside() const {
    const fs::file_status status = fs::symlink_status(aside_);
    if (!fs::exists(status)) return;
    bool ours = fs::is_directory(status);
    if (ours)
      ours = std::ranges::all_of(fs::directory_iterator(aside_), [](const fs::directory_entry& entry) {
        const std::string name = entry.path().filename().string();
        return fs::is_regular_file(entry.symlink_status()) && is_name(name.substr(0, name.find(".tmp")));
      });
    require(ours, "{}: the work in progress would go there, but it holds what no export wrote. Move it away.",
            aside_.string());
    fs::remove_all(aside_);
  }
  static bool is_name(const std::string& name) {
    const auto names = {kConfigFile, kGenerationFile, kTokenizerConfigFile, kCardFile, kTokenizerFile,
                        kPiecesFile, kModelFile};
    return std::ranges::any_of(names, [&](const char* known) { return name == known; });
  }

  fs::path out_, aside_;
  DirectoryLock lock_;
  bool published_ = false;
};

const char* torch_name(DType type) {
  static constexpr Choice<DType> kNames[] = {
      {"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}};
  return name_of(kNames, type);
}

// The type that holds every weight: transformers loads all of them as what config.json says.
DType widest_type(std::span<const MadeTensor> tensors) {
  const DType first = tensors.front().dtype;
  const bool alike = std::ranges::all_of(tensors, [&](const MadeTensor& t) { return t.dtype == first; });
  return alike ? first : DType::kF32;
}

// What closes a document.
int32_t end_id(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.end_document('\n', ids);
  return ids.empty() ? tokenizer.start_id() : ids.back();
}

// The model's vocabulary is that of its embeddings; ids of special tokens that are not known are null, so that no default of
// another program's stands in for them.
Json special_tokens(const Tokenizer* tokenizer) {
  return {{"bos_token_id", tokenizer ? Json(tokenizer->start_id()) : Json()},
          {"eos_token_id", tokenizer ? Json(end_id(*tokenizer)) : Json()},
          {"pad_token_id", nullptr}};
}

Json tokenizer_config(const Tokenizer& tokenizer, const ModelConfig& model) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},    {"bos_token", tokenizer.token(tokenizer.start_id())},
          {"eos_token", tokenizer.token(end_id(tokenizer))}, {"add_bos_token", false},
          {"clean_up_tokenization_spaces", false},           {"model_max_length", model.length}};
}

struct Card {
  const CheckpointInfo& info;
  const ModelForm& form;
  const Tokenizer* tokenizer;
  int64_t parameters;
  DType type;
};

std::string card_text(const Card& card) {
  const ModelConfig& c = card.info.model;
  std::string text = "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n# A language model\n\n";
  const auto fact = [&](const char* what, const std::string& value) {
    text += fmt::format("| {} | {} |\n", what, value);
  };
  text += "| | |\n|---|---|\n";
  fact("form", fmt::format("{} ({})", family_of(card.form).name, card.form.name));
  fact("parameters", fmt::format("{}", card.parameters));
  fact("shape", fmt::format("{} layers, width {}, {} heads of {}, feed-forward width {}, vocabulary {}", c.layers,
                            c.dim, c.heads, c.head_dim(), c.ffn_dim(), c.vocab));
  fact("type of the weights", torch_name(card.type));
  fact("position method", fmt::format("{}: {}", c.position, position_method(c.position).summary));
  fact("length in training", fmt::format("{} tokens", c.length));
  fact("step", fmt::format("{}", card.info.step));
  if (card.info.training) fact("hash of the training split", card.info.training->data_hash);
  fact("tokenizer", card.tokenizer ? fmt::format("{}, {} entries, hash {}", card.tokenizer->name(),
                                                 card.tokenizer->vocab_size(), hex(card.tokenizer->hash()))
                                   : "none travelled with the model");
  fact("checksum of the weights it was made from", fmt::format("CRC-32 {}", card.info.weights));
  text += fmt::format("\nExported by longshot {} with `longshot export RUN --format hf --family {}`.\n", version(),
                      card.form.name);
  if (c.position == "alibi") {
    text += fmt::format(
        "\nThe config names {} tokens, the length in training. ALiBi is defined beyond it; how far this model\n"
        "holds is measured by `longshot eval RUN --data DIR --lengths ..`.\n",
        c.length);
  }
  return text;
}

bool is_read_elsewhere(const std::string& file) { return file == kTokenizerFile || file == kPiecesFile; }

void write_tokenizer(const fs::path& dir, const Tokenizer& tokenizer, const ModelConfig& model) {
  tokenizer.save(dir);
  if (tokenizer.file_name() == kTokenizerFile)
    write_json(dir / kTokenizerConfigFile, tokenizer_config(tokenizer, model));
}

}  // namespace

HfExported export_hf(const HfExport& request) {
  const fs::path dir = find_checkpoint(request.run);
  const CheckpointInfo info = read_checkpoint(dir, request.watch.part(0, 0.3));
  const ModelForm& form = fitting_form(hf_forms(), info.model, request.family, request.run.string());
  std::unique_ptr<Tokenizer> tokenizer;
  if (is_read_elsewhere(info.tokenizer_file)) tokenizer = load_tokenizer(dir / info.tokenizer_file);
  const SourceTensors ours = source_tensors(std::make_shared<const Safetensors>(dir / kModelFile));
  const std::vector<MadeTensor> theirs = make_theirs(ours, family_of(form).rules(info.model), info.model, request.type);
  const DType type = widest_type(theirs);

  OutputDirectory out(request.out);
  HfExported done{.family = form.name};
  for (const MadeTensor& t : theirs) done.parameters += element_count(t.shape).value_or(0);
  done.bytes =
      write_safetensors(out.aside() / kModelFile, streamed(theirs), {{"format", "pt"}}, request.watch.part(0.3, 1))
          .bytes;
  Json config = write_config(form, info.model);
  config["torch_dtype"] = torch_name(type);
  config.update(special_tokens(tokenizer.get()));
  write_json(out.aside() / kConfigFile, config);
  write_json(out.aside() / kGenerationFile, special_tokens(tokenizer.get()));
  if (tokenizer) {
    write_tokenizer(out.aside(), *tokenizer, info.model);
    done.tokenizer = tokenizer->file_name();
  }
  write_atomically(out.aside() / kCardFile, card_text({info, form, tokenizer.get(), done.parameters, type}));
  out.publish_all();
  return done;
}

}  // namespace longshot
