#include "serve/request_fields.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/options.h"

namespace longshot {
namespace {

constexpr JsonLimits kLimits{.bytes = size_t{64} << 20, .values = 1'000'000, .depth = 8};

std::string quoted(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() <= 40) return text;
  return std::string(value.type_name()) + (value.is_structured() ? fmt::format(" of {}", value.size()) : "");
}

Json object_of(std::string_view body) {
  require_usage(!body.empty(), "the body is empty; a JSON object was expected");
  Json json;
  try {
    json = parse_json(body, "the body", kLimits);
  } catch (const Error& e) {
    fail_usage("{}", e.what());
  }
  require_usage(json.is_object(), "the body is {}; a JSON object was expected", json.type_name());
  return json;
}

}  // namespace

RequestFields::RequestFields(std::string_view body) : object_(object_of(body)) {}
RequestFields::RequestFields(Json object, std::string name) : object_(std::move(object)), name_(std::move(name)) {}

void RequestFields::refuse(const char* name, const char* wanted, const Json& got) const {
  fail_usage("'{}{}' must be {}, but is {}", name_, name, wanted, quoted(got));
}

const Json* RequestFields::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> RequestFields::text(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(name, "a text", *value);
  return value->get<std::string>();
}

std::optional<bool> RequestFields::flag(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "true or false", *value);
  return value->get<bool>();
}

std::optional<double> RequestFields::number(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse(name, "a number", *value);
  return value->get<double>();
}

std::optional<int64_t> RequestFields::count(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value->is_number_unsigned() || value->get<uint64_t>() > kMost) refuse(name, "a count, 0 or more", *value);
  return value->get<int64_t>();
}

std::optional<uint64_t> RequestFields::seed(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) refuse(name, "an integer", *value);
  return value->is_number_unsigned() ? value->get<uint64_t>() : static_cast<uint64_t>(value->get<int64_t>());
}

std::optional<std::vector<std::string>> RequestFields::texts(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_string()) return std::vector{value->get<std::string>()};
  const bool all = value->is_array() && std::ranges::all_of(*value, [](const Json& v) { return v.is_string(); });
  if (!all) refuse(name, "a text or a list of texts", *value);
  return value->get<std::vector<std::string>>();
}

std::optional<RequestFields> RequestFields::object(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse(name, "an object", *value);
  return RequestFields(*value, std::string(name) + ".");
}

void RequestFields::require_neutral(const char* name, const std::vector<Json>& neutral) {
  const Json* value = find(name);
  if (!value || std::ranges::find(neutral, *value) != neutral.end()) return;
  fail_usage("'{}{}' is not supported, but is {}", name_, name, quoted(*value));
}

void RequestFields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    fail_usage("unknown field '{}{}'.{}", name_, key.substr(0, 80), did_you_mean(key, known_));
  }
}

std::vector<int32_t> ids_of(const Json& list, const char* name) {
  std::vector<int32_t> ids;
  require_usage(list.is_array(), "'{}' must be a list of token ids, but is {}", name, quoted(list));
  for (const Json& id : list) {
    require_usage(id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max(),
                  "'{}' holds {}, which is no token id", name, quoted(id));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace longshot
