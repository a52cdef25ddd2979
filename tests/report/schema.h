// As much of JSON Schema as docs/results-schema.json uses. An unknown keyword is an error: the check must not
// pass by ignorance.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/records.h"

namespace longshot {

class Schema {
 public:
  explicit Schema(Json root) : root_(std::move(root)) {}
  // "" if `value` is valid, else the first complaint.
  std::string check(const Json& value) const { return check(value, root_, "$"); }

 private:
  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "null") return value.is_null();
    throw std::runtime_error("unknown type " + type);
  }

  std::string check(const Json& value, const Json& schema, const std::string& where) const {
    for (const auto& [key, rule] : schema.items()) {
      const std::string complaint = check_rule(value, schema, key, rule, where);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }

  std::string check_rule(const Json& value, const Json& schema, const std::string& key, const Json& rule,
                         const std::string& where) const {
    const auto no = [&](const std::string& why) { return fmt::format("{}: {}", where, why); };
    if (key == "$schema" || key == "title" || key == "description" || key == "$defs") return "";
    if (key == "$ref") return check(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), where);
    if (key == "const") return value == rule ? "" : no("is not " + rule.dump());
    if (key == "enum") {
      for (const Json& choice : rule)
        if (value == choice) return "";
      return no("is none of " + rule.dump());
    }
    if (key == "type") {
      for (const Json& type : rule.is_array() ? rule : Json::array({rule}))
        if (has_type(value, type)) return "";
      return no("is not of type " + rule.dump());
    }
    if (key == "minimum") return !value.is_number() || value >= rule ? "" : no("is below " + rule.dump());
    if (key == "maximum") return !value.is_number() || value <= rule ? "" : no("is above " + rule.dump());
    if (key == "minLength") return value.get<std::string>().size() >= rule ? "" : no("is too short");
    if (key == "anyOf") {
      for (const Json& choice : rule)
        if (check(value, choice, where).empty()) return "";
      return no("fits none of several");
    }
    if (key == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i)
        if (const auto c = check(value[i], rule, fmt::format("{}[{}]", where, i)); !c.empty()) return c;
      return "";
    }
    if (key == "required") {
      for (const Json& name : rule)
        if (!value.contains(name.get<std::string>())) return no("lacks " + name.dump());
      return "";
    }
    if (key == "properties") {
      for (const auto& [name, item] : value.items())
        if (rule.contains(name))
          if (const auto c = check(item, rule[name], where + "." + name); !c.empty()) return c;
      return "";
    }
    if (key == "additionalProperties") {
      for (const auto& [name, item] : value.items())
        if (!schema["properties"].contains(name)) return no("has the unknown field " + name);
      return "";
    }
    throw std::runtime_error("unknown keyword " + key);
  }

  Json root_;
};

}  // namespace longshot
