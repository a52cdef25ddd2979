#include "formats/hf_config.h"

#include <cmath>

#include "base/choice.h"
#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;  // what a model can have is said by ModelConfig::validate

}  // namespace

HfConfig::HfConfig(JsonTree object, std::string origin)
    : HfConfig(std::move(object), std::move(origin), "", std::make_shared<std::vector<std::string>>()) {
  require(object_.is_object(), "{}: an object was expected", origin_);
}

const JsonTree* HfConfig::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::pair<const char*, const JsonTree*> HfConfig::find(Keys keys) const {
  std::pair<const char*, const JsonTree*> first{nullptr, nullptr};
  for (const char* key : keys) {
    const JsonTree* value = find(key);
    if (!value) continue;
    if (!first.second) {
      first = {key, value};
      continue;
    }
    require(*value == *first.second, "{}: {} but {}. They name one thing; which of them is right?", origin_,
            named(first.first, *first.second), named(key, *value));
  }
  return first;
}

std::string HfConfig::named(const char* key, const JsonTree& value) const {
  return fmt::format("\"{}{}\" is {}", prefix_, key, shown(dump_json(value)));
}

int64_t HfConfig::count(Keys keys, std::optional<int64_t> otherwise) const {
  const auto [key, value] = find(keys);
  if (!value) {
    require(otherwise.has_value(), "{}: has no \"{}{}\", which this kind of model needs", origin_, prefix_,
            *keys.begin());
    return *otherwise;
  }
  require(value->is_number_integer() && *value >= 1 && *value <= kMost, "{}: {}, not a whole number from 1 on", origin_,
          named(key, *value));
  return value->get<int64_t>();
}

double HfConfig::number(Keys keys, double otherwise) const {
  const auto [key, value] = find(keys);
  if (!value) return otherwise;
  require(value->is_number() && std::isfinite(value->get<double>()), "{}: {}, not a number", origin_,
          named(key, *value));
  return value->get<double>();
}

bool HfConfig::flag(const char* key, bool otherwise) const {
  const JsonTree* value = find(key);
  if (!value) return otherwise;
  require(value->is_boolean(), "{}: {}, neither true nor false", origin_, named(key, *value));
  return value->get<bool>();
}

std::string HfConfig::text(const char* key, const std::string& otherwise) const {
  const JsonTree* value = find(key);
  if (!value) return otherwise;
  require(value->is_string(), "{}: {}, not text", origin_, named(key, *value));
  return value->get<std::string>();
}

HfConfig HfConfig::inside(const char* key) const {
  const JsonTree* value = find(key);
  require(!value || value->is_object(), "{}: {}, not an object", origin_, value ? named(key, *value) : "");
  return {value ? *value : JsonTree::object(), origin_, prefix_ + key + ".", refusals_};
}

void HfConfig::refuse(const char* key, const std::string& why) {
  const JsonTree* value = find(key);
  refusals_->push_back(
      fmt::format("{}: {}", value ? named(key, *value) : fmt::format("\"{}{}\" is absent", prefix_, key), why));
}

void HfConfig::must_be(const char* key, const JsonTree& value, const std::string& why) {
  const JsonTree* found = find(key);
  if (found && *found != value) refuse(key, why);
}

Activation HfConfig::activation(const char* key, const std::string& otherwise) {
  static constexpr Choice<Activation> kNames[] = {
      {"relu", Activation::kRelu},         {"gelu", Activation::kGeluExact}, {"gelu_python", Activation::kGeluExact},
      {"gelu_new", Activation::kGelu},     {"gelu_fast", Activation::kGelu}, {"gelu_pytorch_tanh", Activation::kGelu},
      {"gelu_accurate", Activation::kGelu}};
  const std::string name = text(key, otherwise);
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  refuse(key, "this program has relu, gelu (exact) and gelu_new (its tanh form)");
  return Activation::kGelu;
}

}  // namespace longshot
