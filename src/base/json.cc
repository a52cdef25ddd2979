#include "base/json.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_problem.h"
#include "base/printable.h"

namespace longshot {
namespace {

constexpr size_t kLongestQuote = 80;

// Characters of a text, telling how many have been taken: the parser says so only where its grammar is broken.
class CountedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedText(const char* at, const char** taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountedText& operator++() {
    *taken_ = ++at_;
    return *this;
  }
  bool operator==(const CountedText& other) const { return at_ == other.at_; }
  bool operator!=(const CountedText& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** taken_;
};

// Builds a value from the parser's events. An object's members wait in a list and enter it together when it
// ends, so that neither a search among the keys before nor a table that grows is paid for every one.
template <class Value>
class Builder : public nlohmann::json_sax<Value> {
 public:
  using typename nlohmann::json_sax<Value>::number_integer_t;
  using typename nlohmann::json_sax<Value>::number_unsigned_t;
  using typename nlohmann::json_sax<Value>::number_float_t;
  using typename nlohmann::json_sax<Value>::string_t;
  using typename nlohmann::json_sax<Value>::binary_t;

  Builder(std::string_view text, const std::string& origin, const JsonLimits& limits)
      : text_(text), origin_(origin), limits_(limits), taken_(text.data()) {}

  Value run() {
    require(text_.size() <= limits_.bytes, "{}: {} bytes of JSON are more than the limit of {}", origin_, text_.size(),
            limits_.bytes);
    const char* end = text_.data() + text_.size();
    Value::sax_parse(CountedText(text_.data(), &taken_), CountedText(end, &taken_), this);
    return std::move(root_);
  }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no text holds one

  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& name) override {
    open_.back().members.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool end_object() override {
    Members members = std::move(open_.back().members);
    open_.pop_back();
    return put(object_of(members));
  }
  bool end_array() override {
    typename Value::array_t elements = std::move(open_.back().elements);
    open_.pop_back();
    return put(Value(std::move(elements)));
  }

  [[noreturn]] bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    refuse(fmt::format("not valid JSON: {}", json_problem(e.what())), position);
  }

 private:
  using Members = std::vector<std::pair<std::string, Value>>;
  struct Open {
    bool is_object;
    Members members;
    typename Value::array_t elements;
  };

  [[noreturn]] void refuse(const std::string& why, size_t position) const {
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const size_t column = before.size() - (before.rfind('\n') + 1);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::string place = text_.find('\n') == std::string_view::npos ? "" : fmt::format("line {}, ", line);
    fail("{}: {}column {}: {}", origin_, place, column, why);
  }

  void limit(bool ok, const char* what, size_t most) const {
    if (!ok) refuse(fmt::format("more than {} {}", most, what), taken());
  }

  size_t taken() const { return static_cast<size_t>(taken_ - text_.data()); }

  bool open(bool is_object) {
    limit(open_.size() < static_cast<size_t>(limits_.depth), "objects and lists inside each other",
          static_cast<size_t>(limits_.depth));
    open_.push_back({is_object, {}, {}});
    return true;
  }

  bool put(Value value) {
    limit(++values_ <= limits_.values, "values", limits_.values);
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.back().second = std::move(value);
    } else {
      open_.back().elements.push_back(std::move(value));
    }
    return true;
  }

  Value object_of(Members& members) const {
    std::vector<uint32_t> order(members.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](uint32_t a, uint32_t b) { return members[a].first == members[b].first; });
    if (twice != order.end()) {
      refuse(fmt::format("the object that ends here has the key \"{}\" twice",
                         members[*twice].first.substr(0, kLongestQuote)),
             taken());
    }
    typename Value::object_t object;
    if constexpr (std::is_same_v<Value, Json>) {
      object.reserve(members.size());
      for (auto& [name, value] : members) object.emplace_back(std::move(name), std::move(value));
    } else {
      for (const uint32_t i : order) {
        object.emplace_hint(object.end(), std::move(members[i].first), std::move(members[i].second));
      }
    }
    return Value(std::move(object));
  }

  std::string_view text_;
  const std::string& origin_;
  const JsonLimits& limits_;
  const char* taken_;
  size_t values_ = 0;
  std::vector<Open> open_;
  Value root_;
};

template <class Value>
std::string dump(const Value& value, int indent) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}

}  // namespace

// "[json.exception...] parse error at line 1, column 9: syntax error ... - invalid literal; last read: '...'", or
// "[json.exception...] type must be string, but is null"
std::string json_problem(std::string_view what) {
  what = what.substr(0, what.find("; last read: "));
  const auto skip = [&](std::string_view until) {
    const size_t at = what.find(until);
    if (at != std::string_view::npos) what.remove_prefix(at + until.size());
    return at != std::string_view::npos;
  };
  skip("] ");
  if (skip(", column ")) skip(": ");
  return printable(what.substr(0, 2 * kLongestQuote));
}

Json parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  return Builder<Json>(text, origin, limits).run();
}

JsonTree parse_json_tree(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  return Builder<JsonTree>(text, origin, limits).run();
}

Json read_json(const fs::path& path) { return parse_json(read_text(path), path.string()); }

std::string dump_json(const Json& value, int indent) { return dump(value, indent); }
std::string dump_json(const JsonTree& value, int indent) { return dump(value, indent); }

void write_json(const fs::path& path, const Json& value) { write_atomically(path, dump_json(value, 2) + "\n"); }

}  // namespace longshot
