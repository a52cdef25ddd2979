#include "formats/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {

namespace {

constexpr int64_t kMostHeads = 1 << 16;

}  // namespace

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

void read_rotary(HfConfig& json, const RotaryKeys& keys, ModelConfig& model) {
  if (json.has("rope_scaling")) {
    const HfConfig scaling = json.inside("rope_scaling");
    const std::string type = scaling.text(scaling.has("rope_type") ? "rope_type" : "type", "");
    if (type != "default") json.refuse("rope_scaling", "rotary positions are not scaled here");
  }
  HfConfig rope = json.inside("rope_parameters");
  rope.must_be("rope_type", "default", "rotary positions are not scaled here");
  const double base = rope.number({"rope_theta"}, json.number({"rope_theta", keys.base}, 10000));
  const double fraction = rope.number({"partial_rotary_factor"},
                                      json.number({"partial_rotary_factor", keys.fraction}, keys.default_fraction));
  model.position = "rotary";
  model.set("rotary-style", "half");
  model.set("rotary-base", fmt::format("{}", base));
  model.set("rotary-fraction", fmt::format("{}", fraction));
}

void change_slopes(ModelConfig& model, const std::function<double(double)>& f) {
  if (model.heads > kMostHeads) return;  // refused by validate()
  std::vector<double> slopes;
  const std::unique_ptr<Position> paper = model.make_position();
  for (const float m : paper->bias(0).slopes) slopes.push_back(f(m));
  model.set("alibi-slopes", fmt::format("{}", fmt::join(slopes, ",")));
}

//   2^(-M h / H) = (2^(-8 h / H))^(M / 8), also where H is no power of two
void set_alibi_max(ModelConfig& model, double max) {
  if (max == kPaperAlibiMax) return;
  change_slopes(model, [max](double m) { return std::pow(m, max / kPaperAlibiMax); });
}

std::optional<double> alibi_max(const ModelConfig& model) {
  ModelConfig papers = model;
  papers.set("alibi-slopes", "");
  const auto slopes = [](const ModelConfig& m) {
    const std::unique_ptr<Position> position = m.make_position();
    const std::span<const float> all = position->bias(0).slopes;
    return std::vector<float>(all.begin(), all.end());
  };
  const std::vector<float> wanted = slopes(model);
  // Six digits of what the first slope says; the others agree, or there is no such M.
  const double said = kPaperAlibiMax * std::log2(wanted.at(0)) / std::log2(slopes(papers).at(0));
  if (!(said > 0) || !std::isfinite(said)) return {};
  const double max = std::stod(fmt::format("{:.6g}", said));
  set_alibi_max(papers, max);
  return slopes(papers) == wanted ? std::optional(max) : std::nullopt;
}

int64_t rotated_dims(const ModelConfig& model) {
  const double fraction = std::stod(option_values(model).at("rotary-fraction"));
  return static_cast<int64_t>(static_cast<double>(model.head_dim()) * fraction) / 2 * 2;
}

double rotary_fraction(int64_t dims, int64_t head_dim) {
  const auto d = static_cast<double>(head_dim), turned = static_cast<double>(dims);
  const double fraction = turned / d;
  return std::floor(d * fraction) == turned ? fraction : std::nextafter(fraction, 1);
}

void add_output(TensorRules& rules, const ModelConfig& model, const std::string& theirs, const std::string& embedding) {
  if (model.tied) {
    rules.copies.push_back({theirs, embedding});
  } else {
    rules.rules.push_back({"output.weight", {{theirs}}});
  }
}

}  // namespace longshot
