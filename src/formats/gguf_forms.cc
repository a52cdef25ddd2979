#include "formats/gguf_forms.h"

#include <algorithm>

#include "base/error.h"
#include "formats/families.h"
#include "position/alibi.h"
#include "position/rotary.h"

namespace longshot {
namespace {

using Values = std::vector<std::string>;

const Values kYes{"true"}, kNo{"false"};
constexpr const char* kGelu = "gelu";  // of all architectures with a plain feed-forward part: the tanh form

// GGUF's numbers have 32 bits; they are read as the shortest decimal number that gives them.
float in_file(const char* option, double value) {
  const auto narrow = static_cast<float>(value);
  require_usage(std::stod(fmt::format("{}", narrow)) == value,
                "--{} {} has more digits than the 32 bits of a GGUF file keep: it would become {}", option, value,
                narrow);
  return narrow;
}

class Writer {
 public:
  Writer(GgufKeys& keys, std::string architecture) : keys_(keys), architecture_(std::move(architecture)) {}
  template <class T>
  void operator()(const char* key, T value) {
    keys_.add(architecture_ + "." + key, value);
  }
  void count(const char* key, int64_t value) { (*this)(key, static_cast<uint32_t>(value)); }

 private:
  GgufKeys& keys_;
  std::string architecture_;
};

void add_common(Writer& keys, const ModelConfig& model) {
  keys.count("vocab_size", model.vocab);
  keys.count("context_length", model.length);
  keys.count("embedding_length", model.dim);
  keys.count("block_count", model.layers);
  keys.count("feed_forward_length", model.ffn_dim());
  keys.count("attention.head_count", model.heads);
  keys.count("attention.head_count_kv", model.key_heads());
  const bool rms = model.norm == NormKind::kRmsNorm;
  keys(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
       in_file("norm-epsilon", model.norm_epsilon));
}

void add_mpt(Writer& keys, const ModelConfig& model) {
  const std::optional<double> max = alibi_max(model.position_options.of<AlibiOptions>().slopes_of(model.heads));
  keys("attention.max_alibi_bias", static_cast<float>(max.value_or(kPaperAlibiMax)));
  if (model.clip_qkv > 0) keys("attention.clamp_kqv", in_file("clip-qkv", model.clip_qkv));
}

void add_rotary(Writer& keys, const ModelConfig& model) {
  keys.count("rope.dimension_count", rotated_dims(model));
  keys("rope.freq_base", in_file("rotary-base", model.position_options.of<RotaryOptions>().base));
  if (model.norm == NormKind::kLayerNorm) keys("use_parallel_residual", model.parallel_residual);
}

}  // namespace

std::span<const ModelForm> gguf_forms() {
  static const std::vector<ModelForm> kForms{
      {.name = "mpt",
       .says = {{"position", {"alibi"}}, {"activation", {kGelu}}},
       .any = {"norm-epsilon", "bias", "tied", "ffn", "kv-heads", "clip-qkv"},
       .alibi_max = true},
      {.name = "bloom",
       .says = {{"position", {"alibi"}}, {"activation", {kGelu}}, {"bias", kYes}, {"embedding-norm", kYes}},
       .any = {"norm-epsilon", "tied", "ffn", "kv-heads"}},
      {.name = "gptneox",
       .says = {{"position", {"rotary"}}, {"rotary-style", {"half"}}, {"activation", {kGelu}}, {"bias", kYes}},
       .any = {"norm-epsilon", "tied", "ffn", "kv-heads", "parallel-residual", "rotary-base", "rotary-fraction"}},
      {.name = "llama",
       .says = {{"position", {"rotary"}},
                {"rotary-style", {"half"}},
                {"norm", {"rmsnorm"}},
                {"activation", {"swiglu"}},
                {"bias", kNo}},
       .any = {"norm-epsilon", "tied", "ffn", "kv-heads", "rotary-base"}},
      {.name = "gpt2",
       .says = {{"position", {"learned"}}, {"activation", {kGelu}}, {"bias", kYes}},
       .any = {"norm-epsilon", "tied", "ffn", "kv-heads"}},
  };
  return kForms;
}

GgufKeys gguf_keys(const ModelForm& form, const ModelConfig& model) {
  GgufKeys keys;
  keys.add("general.architecture", form.name);
  keys.add("general.type", "model");
  Writer own(keys, form.name);
  add_common(own, model);
  if (form.name == "mpt") add_mpt(own, model);
  if (model.position == "rotary") add_rotary(own, model);
  return keys;
}

TensorRules gguf_rules(const ModelForm& form, const ModelConfig& model) {
  TensorRules rules = gguf_rules(model);
  for (TensorRules::Copy& copy : rules.copies) copy.written = form.name == "gptneox";
  return rules;
}

}  // namespace longshot
