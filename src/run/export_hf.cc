#include "run/export_hf.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/version.h"
#include "data/token_set_dir.h"
#include "formats/hf_forms.h"
#include "run/aside_output.h"
#include "run/checkpoint.h"

namespace longshot {
namespace {

constexpr const char *kConfigFile = "config.json", *kGenerationFile = "generation_config.json",
                     *kTokenizerConfigFile = "tokenizer_config.json", *kCardFile = "README.md";

bool is_name(const std::string& name) {
  const auto names = {kConfigFile,        kGenerationFile, kTokenizerConfigFile, kCardFile, kHfTokenizerFile,
                      kSentencePieceFile, kModelFile};
  return std::ranges::any_of(names, [&](const char* known) { return name == known; });
}

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

// As it is, by other programs.
bool is_read_elsewhere(const std::string& file) { return file == kHfTokenizerFile || file == kSentencePieceFile; }

void write_tokenizer(const fs::path& dir, const Tokenizer& tokenizer, const ModelConfig& model) {
  tokenizer.save(dir);
  if (tokenizer.file_name() == kHfTokenizerFile)
    write_json(dir / kTokenizerConfigFile, tokenizer_config(tokenizer, model));
}

}  // namespace

HfExported export_hf(const HfExport& request) {
  const fs::path dir = find_checkpoint(request.run);
  CheckedBeside checked(dir);
  const CheckpointInfo& info = checked.info();
  const ModelForm& form = fitting_form(hf_forms(), info.model, request.family, request.run.string());
  std::unique_ptr<Tokenizer> tokenizer;
  if (is_read_elsewhere(info.tokenizer_file)) tokenizer = load_tokenizer(dir / info.tokenizer_file);
  const SourceTensors ours = source_tensors(std::make_shared<const Safetensors>(dir / kModelFile));
  const std::vector<MadeTensor> theirs = make_theirs(ours, family_of(form).rules(info.model), info.model, request.type);
  const DType type = widest_type(theirs);

  AsideOutput out(request.out, is_name);
  HfExported done{.family = form.name};
  for (const MadeTensor& t : theirs) done.parameters += element_count(t.shape).value_or(0);
  done.bytes = write_safetensors(out.path() / kModelFile, streamed(theirs), {{"format", "pt"}}, request.watch);
  Json config = write_config(form, info.model);
  config["torch_dtype"] = torch_name(type);
  config.update(special_tokens(tokenizer.get()));
  write_json(out.path() / kConfigFile, config);
  write_json(out.path() / kGenerationFile, special_tokens(tokenizer.get()));
  if (tokenizer) {
    write_tokenizer(out.path(), *tokenizer, info.model);
    done.tokenizer = tokenizer->file_name();
  }
  write_atomically(out.path() / kCardFile, card_text({info, form, tokenizer.get(), done.parameters, type}));
  checked.finish();
  out.publish_it();
  return done;
}

}  // namespace longshot
