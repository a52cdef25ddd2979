// The fields of a request's JSON object, each asked for once and checked. A field that nobody asked for is refused by name.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace longshot {

class RequestFields {
 public:
  // Error(kUsage) unless the text is a JSON object within the limits.
  explicit RequestFields(std::string_view body);
  RequestFields(Json object, std::string name);  // one inside another

  // Nothing where the field is absent or null. Error(kUsage) where it is of another kind.
  const Json* find(const char* name);
  std::optional<std::string> text(const char* name);
  std::optional<bool> flag(const char* name);
  std::optional<double> number(const char* name);
  std::optional<int64_t> count(const char* name);  // an integer that is not negative
  std::optional<uint64_t> seed(const char* name);
  std::optional<std::vector<std::string>> texts(const char* name);  // one, or a list of them
  std::optional<RequestFields> object(const char* name);

  // A field that may be there as long as it asks for nothing.
  void require_neutral(const char* name, const std::vector<Json>& neutral);
  void ignore(const char* name) { known_.emplace_back(name); }
  // Every field has been asked for, or an Error that names the one that has not and what may be meant.
  void finish() const;

 private:
  [[noreturn]] void refuse(const char* name, const char* wanted, const Json& got) const;

  Json object_;
  std::string name_;  // "" or "outer."
  std::vector<std::string> known_;
};

// A list of token ids. Error(kUsage) for anything else.
std::vector<int32_t> ids_of(const Json& list, const char* name);

}  // namespace longshot
