#include "formats/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "position/alibi.h"
#include "position/rotary.h"

namespace longshot {

extern const Family family_baichuan, family_bloom, family_falcon, family_gpt2, family_gpt_neox, family_llama,
    family_mpt;

std::span<const Family* const> families() {
  static constexpr const Family* kAll[] = {&family_baichuan, &family_bloom, &family_falcon, &family_gpt2,
                                           &family_gpt_neox, &family_llama, &family_mpt};
  return kAll;
}

const Family& family_of(const HfConfig& json) {
  const std::string type = json.text("model_type", "");
  std::vector<std::string_view> known;
  for (const Family* family : families()) {
    if (std::ranges::find(family->model_types, type) != family->model_types.end()) return *family;
    known.push_back(family->model_types.front());
  }
  fail("{}: \"model_type\" is \"{}\", which this program does not know. It knows: {}", json.origin(), shown(type),
       fmt::join(known, ", "));
}

ModelConfig read_config(const Family& family, HfConfig& json) {
  json.must_be("is_encoder_decoder", false, "decoders alone are read");
  json.must_be("add_cross_attention", false, "decoders alone are read");
  json.must_be("pruned_heads", JsonTree::object(), "heads are not pruned here");
  json.must_be("is_causal", true, "every token sees those before it and no others");
  if (json.has("quantization_config")) json.refuse("quantization_config", "quantized weights are not read");
  ModelConfig model = family.read_config(json);
  if (!json.refusals().empty()) return model;
  try {
    model.validate();
  } catch (const Error& e) {
    fail("{}: {}", json.origin(), e.what());
  }
  return model;
}

void require_supported(const Family& family, const HfConfig& json) {
  require(json.refusals().empty(), "{}: this {} asks for what this program does not do: {}", json.origin(), family.name,
          fmt::join(json.refusals(), "; "));
}

ModelConfig plain_model(const HfConfig& json, bool tied) {
  ModelConfig model;
  model.vocab = json.count({"vocab_size"});
  model.tied = json.flag("tie_word_embeddings", tied);
  model.embed_scale = false;
  return model;
}

int64_t rotated_dims(const ModelConfig& model) {
  const double fraction = model.position_options.of<RotaryOptions>().fraction;
  return static_cast<int64_t>(static_cast<double>(model.head_dim()) * fraction) / 2 * 2;
}

double rotary_fraction(int64_t turned, int64_t head_dim) {
  const double d = static_cast<double>(head_dim), factor = static_cast<double>(turned) / d;
  return static_cast<int64_t>(d * factor) == turned ? factor : std::nextafter(factor, 1);
}

// With n = int(D * fraction), transformers turns pair c = 0 .. R/2 - 1 by p * base^(-2c / n), where R is n or, if that is odd,
// n + 1. Ours turns it by p * base'^(-2c / R):  base' = base^(R / n).
void read_rotary(HfConfig& json, const RotaryKeys& keys, ModelConfig& model) {
  const char* const scaled = "rotary positions are not scaled here";
  HfConfig older = json.inside("rope_scaling"), rope = json.inside("rope_parameters");
  if (json.has("rope_scaling") && !older.has("rope_type") && !older.has("type")) json.refuse("rope_scaling", scaled);
  for (HfConfig* part : {&older, &rope}) {
    for (const char* key : {"rope_type", "type"}) part->must_be(key, "default", scaled);
    for (const char* key : {"full_attention", "sliding_attention"})
      if (part->has(key)) part->refuse(key, "all layers are alike here");
  }
  const auto value = [&](const char* key, double otherwise) {
    return older.number({key}, rope.number({key}, otherwise));
  };
  const double base = value("rope_theta", json.number({"rope_theta", keys.base}, 10000));
  const double fraction =
      value("partial_rotary_factor", json.number({"partial_rotary_factor", keys.fraction}, keys.default_fraction));
  if (keys.whole_heads && fraction != 1)
    json.refuse(json.has("partial_rotary_factor") ? "partial_rotary_factor" : "rope_parameters",
                "this kind of model turns whole heads");
  model.position = "rotary";
  RotaryOptions& rotary = model.position_options.of<RotaryOptions>();
  rotary.style = RotaryOptions::Style::kHalf, rotary.base = base, rotary.fraction = fraction;
  if (!(fraction > 0 && fraction <= 1) || !(base > 1) || model.head_dim() == 0) return;  // refused by validate()
  const int64_t d = model.head_dim(), n = static_cast<int64_t>(static_cast<double>(d) * fraction), turned = n + n % 2;
  require(turned > 0 && turned <= d, "{}: rotary positions turn {} of the {} elements of a head, in pairs",
          json.origin(), n, d);
  if (n % 2 == 1) rotary.base = std::pow(base, static_cast<double>(turned) / static_cast<double>(n));
  rotary.fraction = rotary_fraction(turned, d);
}

void change_slopes(ModelConfig& model, const std::function<double(double)>& f) {
  if (model.heads > kMostHeads) return;  // refused by validate()
  std::vector<double>& slopes = model.position_options.of<AlibiOptions>().slopes;
  slopes = alibi_slopes(model.heads);
  std::ranges::transform(slopes, slopes.begin(), f);
}

void read_alibi_max(const HfConfig& json, const char* key, ModelConfig& model) {
  constexpr double kSteepest = 64;
  const double max = json.number({key}, kPaperAlibiMax);
  require(max > 0 && max <= kSteepest, "{}: \"{}\" is {}, not above 0 and at most {}", json.origin(), key, max,
          kSteepest);
  if (max == kPaperAlibiMax || model.heads > kMostHeads) return;
  model.position_options.of<AlibiOptions>().slopes = alibi_slopes(model.heads, max);
}

void add_output(TensorRules& rules, const ModelConfig& model, const std::string& theirs, const std::string& embedding) {
  if (model.tied) {
    rules.copies.push_back({theirs, embedding});
  } else {
    rules.rules.push_back({"output.weight", {{theirs}}});
  }
}

}  // namespace longshot
