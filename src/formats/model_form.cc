#include "formats/model_form.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "position/alibi.h"

namespace longshot {
namespace {

// Sizes, and what does not change what a finished model computes. Those of adaptive softmax say nothing without its cutoffs.
constexpr const char* kImmaterial[] = {"layers",
                                       "dim",
                                       "heads",
                                       "length",
                                       "dropout",
                                       "attention-dropout",
                                       "activation-dropout",
                                       "embedding-dropout",
                                       "adaptive-factor",
                                       "adaptive-dropout",
                                       "adaptive-padding-rows",
                                       "attention-epsilon"};

OptionValues plain_values() {
  ModelConfig plain;
  plain.embed_scale = false;
  return option_values(plain);
}

// Values that mean the default, or that the form says in another word, become it.
OptionValues values_of(const ModelForm& form, ModelConfig config) {
  if (config.ffn_dim() == 4 * config.dim) config.ffn = 0;
  if (config.key_heads() == config.heads) config.kv_heads = 0;
  const double usual = 1 / std::sqrt(static_cast<double>(config.head_dim()));
  if (static_cast<float>(config.scale_of_scores()) == static_cast<float>(usual)) config.score_scale = 0;
  if (config.position == "alibi") {
    AlibiOptions& alibi = config.position_options.of<AlibiOptions>();
    const std::optional<double> max = alibi_max(alibi.slopes_of(config.heads));
    if (max && (form.alibi_max || *max == kPaperAlibiMax)) alibi.slopes.clear();
  }
  return option_values(config);
}

// The method whose option it is; "" for the model's own.
std::string method_of(const std::string& option) {
  for (const PositionMethod* method : position_methods()) {
    if (option.starts_with(method->name + "-")) return method->name;
  }
  return "";
}

std::string in_words(const std::string& option, const std::string& value) {
  if (option == "ffn" && value == "0") return "4 * dim";
  if (option == "kv-heads" && value == "0") return "as many as heads";
  if (option == "score-scale" && value == "0") return "1 / sqrt(dim / heads)";
  return value.empty() ? "none" : value;
}

}  // namespace

std::vector<Misfit> misfits(const ModelForm& form, const ModelConfig& config) {
  const OptionValues values = values_of(form, config), plain = plain_values();
  std::vector<Misfit> found;
  const auto fits = [&](const std::string& option, const std::string& value) {
    if (std::ranges::find(kImmaterial, option) != std::end(kImmaterial)) return true;
    if (std::ranges::find(form.any, option) != form.any.end()) return true;
    const auto said = form.says.find(option);
    const std::vector<std::string> allowed =
        said == form.says.end() ? std::vector<std::string>{plain.at(option)} : said->second;
    if (std::ranges::find(allowed, value) != allowed.end()) return true;
    std::vector<std::string> words;
    for (const std::string& a : allowed) words.push_back(in_words(option, a));
    found.push_back({option, in_words(option, value), fmt::format("{}", fmt::join(words, " or "))});
    return false;
  };
  const bool same_method = fits("position", config.position);
  for (const auto& [option, value] : values) {
    const std::string method = method_of(option);
    if (option != "position" && (method.empty() || (same_method && method == config.position))) fits(option, value);
  }
  return found;
}

std::string misfits_text(const ModelForm& form, const std::vector<Misfit>& found) {
  std::vector<std::string> parts;
  for (const Misfit& m : found)
    parts.push_back(fmt::format("--{} is {}, {} needs {}", m.option, m.value, form.name, m.needed));
  return fmt::format("{}", fmt::join(parts, "; "));
}

const ModelForm& fitting_form(std::span<const ModelForm> forms, const ModelConfig& config, const std::string& name,
                              const std::string& what) {
  std::vector<std::string> names;
  const ModelForm* nearest = nullptr;
  std::vector<Misfit> least;
  // Another position method is further away than any number of options.
  const auto distance = [](const std::vector<Misfit>& found) {
    return std::pair(found.front().option == "position", found.size());
  };
  for (const ModelForm& form : forms) {
    names.push_back(form.name);
    if (!name.empty() && name != form.name) continue;
    std::vector<Misfit> found = misfits(form, config);
    if (found.empty()) return form;
    if (nearest == nullptr || distance(found) < distance(least)) nearest = &form, least = std::move(found);
  }
  require_usage(nearest != nullptr, "'{}' is none of {}.{}", name, fmt::join(names, ", "), did_you_mean(name, names));
  if (!name.empty()) fail_usage("{}: cannot be written as {}: {}", what, name, misfits_text(*nearest, least));
  fail_usage("{}: cannot be written as any of {}. The nearest is {}: {}. Models of configs/portable.toml fit.", what,
             fmt::join(names, ", "), nearest->name, misfits_text(*nearest, least));
}

}  // namespace longshot
