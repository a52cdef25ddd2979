// config.json of a Hugging Face model, or the keys of a GGUF file as such an object, read key by key. What a model asks for and
// this program cannot do is collected, so that all of it can be named at once; a value that is no value for its key is an Error
// at once. null counts as absent.
#pragma once
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/config.h"

namespace longshot {

class HfConfig {
 public:
  // Names of one value; those that are there must agree.
  using Keys = std::initializer_list<const char*>;

  HfConfig(JsonTree object, std::string origin);

  bool has(const char* key) const { return find(key) != nullptr; }
  // From 1 on. Absent: `otherwise`, or an Error where there is none.
  int64_t count(Keys keys, std::optional<int64_t> otherwise = {}) const;
  double number(Keys keys, double otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  // An object inside; empty where there is none. Its refusals are this one's.
  HfConfig inside(const char* key) const;

  // Collects: "key" is VALUE: why.
  void refuse(const char* key, const std::string& why);
  void refuse(std::string what) { refusals_->push_back(std::move(what)); }
  // The same unless the key is absent or has this value.
  void must_be(const char* key, const JsonTree& value, const std::string& why);
  // relu, gelu and its kinds by Hugging Face's names; another is collected.
  Activation activation(const char* key, const std::string& otherwise);

  const std::vector<std::string>& refusals() const { return *refusals_; }
  const std::string& origin() const { return origin_; }

 private:
  HfConfig(JsonTree object, std::string origin, std::string prefix, std::shared_ptr<std::vector<std::string>> refusals)
      : object_(std::move(object)),
        origin_(std::move(origin)),
        prefix_(std::move(prefix)),
        refusals_(std::move(refusals)) {}

  const JsonTree* find(const char* key) const;
  // The value of those keys that are there, and the first of these; null where none is.
  std::pair<const char*, const JsonTree*> find(Keys keys) const;
  std::string named(const char* key, const JsonTree& value) const;  // "key" is VALUE

  JsonTree object_;
  std::string origin_, prefix_;  // the file; the keys of the objects around, "attn_config."
  std::shared_ptr<std::vector<std::string>> refusals_;
};

}  // namespace longshot
