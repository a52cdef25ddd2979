// What a tokenizer.json does to a text before anything else: its "normalizer".
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/watch.h"

namespace longshot {

// With `to` in place of every `from`; an empty `from` is nowhere.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

class Normalizer {
 public:
  Normalizer() = default;
  // NFC, Prepend, Replace of a text, or a Sequence of them. Null: nothing is done.
  static Normalizer from_json(const JsonTree& json, const std::string& origin);

  bool empty() const { return steps_.empty(); }
  // Asks `watch` now and then whether to stop.
  std::string apply(std::string_view text, const Watch& watch = {}) const;
  // No text becomes longer than so many times its bytes, and what is put in front.
  double growth() const { return growth_; }

  bool prepends() const;      // whatever the text begins with
  std::string space() const;  // what is put for a space; "": a space
 private:
  struct Step {
    enum class Kind { kNfc, kPrepend, kReplace } kind;
    std::string from{}, to{};
  };
  void add(const JsonTree& json, const std::string& origin);
  std::vector<Step> steps_;
  double growth_ = 1;
};

}  // namespace longshot
