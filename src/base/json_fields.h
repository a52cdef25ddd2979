// Structs as JSON objects, every field checked on the way in. A struct names its fields once:
//
//   template <class V>
//   void fields(V& v, Point& p) {
//     v("step", p.step, kAnyCount);
//     v("loss", p.loss, kNotNegative);      // std::optional: absent and null both mean "not known"
//   }
//   void check(const Point& p, const FieldReader& reader);      // optional: what must hold between fields
//
//   Json json = write_fields(point);    Point point = read_fields<Point>(json, "file.json");
//
// fields() and check() stand in namespace longshot itself, where argument-dependent lookup finds them.
#pragma once
#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/choice.h"
#include "base/error.h"
#include "base/records.h"

namespace longshot {

class FieldWriter {
 public:
  void operator()(const char* key, const std::string& value, std::initializer_list<const char*> = {}) {
    object_[key] = value;
  }
  void operator()(const char* key, const std::optional<std::string>& value) {
    object_[key] = value ? Json(*value) : Json();
  }
  template <class E, size_t N>
  void operator()(const char* key, E value, const Choice<E> (&choices)[N]) {
    object_[key] = name_of(choices, value);
  }
  template <class E, size_t N>
  void operator()(const char* key, std::optional<E> value, const Choice<E> (&choices)[N]) {
    object_[key] = value ? Json(name_of(choices, *value)) : Json();
  }
  void operator()(const char* key, bool value) { object_[key] = value; }
  void operator()(const char* key, int64_t value, CountRange) { object_[key] = value; }
  void operator()(const char* key, double value, Range) { object_[key] = finite(value); }
  void operator()(const char* key, const OptionalNumber& value, Range) {
    object_[key] = value ? finite(*value) : Json();
  }
  void operator()(const char* key, const OptionalCount& value, CountRange) {
    object_[key] = value ? Json(*value) : Json();
  }
  void operator()(const char* key, const std::vector<double>& values) { object_[key] = numbers(values); }
  void operator()(const char* key, const std::vector<std::vector<double>>& rows) {
    Json list = Json::array();
    for (const auto& row : rows) list.push_back(numbers(row));
    object_[key] = std::move(list);
  }
  void operator()(const char* key, const Json& value) { object_[key] = value; }  // of another's making
  void numbers_if_any(const char* key, const std::vector<double>& values) {
    if (!values.empty()) object_[key] = numbers(values);
  }
  void texts_if_any(const char* key, const std::map<std::string, std::string>& values) {
    if (!values.empty()) object_[key] = values;
  }
  void texts_if_any(const char* key, const std::vector<std::string>& values) {
    if (!values.empty()) object_[key] = values;
  }
  template <class T>
  void object(const char* key, const T& value) {
    object_[key] = written(value);
  }
  template <class T>
  void object(const char* key, const std::optional<T>& value) {
    object_[key] = value ? written(*value) : Json();
  }
  template <class T>
  void list_if_any(const char* key, const std::vector<T>& values) {
    if (!values.empty()) list(key, values);
  }
  template <class T>
  void list(const char* key, const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(written(value));
    object_[key] = std::move(list);
  }

  template <class T>
  static Json written(const T& value) {
    FieldWriter writer;
    fields(writer, const_cast<T&>(value));  // fields() is shared with the reader; a writer changes nothing
    return std::move(writer.object_);
  }

 private:
  static Json finite(double v) { return std::isfinite(v) ? Json(v) : Json(); }
  static Json numbers(const std::vector<double>& values) {
    Json list = Json::array();
    for (const double v : values) list.push_back(finite(v));
    return list;
  }
  Json object_ = Json::object();
};

class FieldReader {
 public:
  FieldReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object_.is_object(), "{}: an object was expected, not {}", where_, shown(object_));
  }
  const std::string& where() const { return where_; }

  void operator()(const char* key, std::string& value, std::initializer_list<const char*> choices = {}) {
    const Json& v = find(key);
    value = text(key, v);
    if (choices.size() == 0) return;
    for (const char* choice : choices)
      if (value == choice) return;
    fail("{}: {} is {}, which is none of {}", where_, key, shown(v), fmt::join(choices, ", "));
  }
  template <class E, size_t N>
  void operator()(const char* key, E& value, const Choice<E> (&choices)[N]) {
    value = chosen(key, find(key), choices);
  }
  template <class E, size_t N>
  void operator()(const char* key, std::optional<E>& value, const Choice<E> (&choices)[N]) {
    const Json* v = find_known(key);
    value = v ? std::optional(chosen(key, *v, choices)) : std::nullopt;
  }
  void operator()(const char* key, std::optional<std::string>& value) {
    const Json* v = find_known(key);
    value = v ? std::optional(text(key, *v)) : std::nullopt;
  }
  void operator()(const char* key, bool& value) {
    const Json& v = find(key);
    require(v.is_boolean(), "{}: {} must be true or false, not {}", where_, key, shown(v));
    value = v.get<bool>();
  }
  void operator()(const char* key, int64_t& value, CountRange range) { value = count(key, find(key), range); }
  void operator()(const char* key, double& value, Range range) { value = number(key, find(key), range); }
  void operator()(const char* key, OptionalNumber& value, Range range) {
    const Json* v = find_known(key);
    value = v ? OptionalNumber(number(key, *v, range)) : std::nullopt;
  }
  void operator()(const char* key, OptionalCount& value, CountRange range) {
    const Json* v = find_known(key);
    value = v ? OptionalCount(count(key, *v, range)) : std::nullopt;
  }
  void operator()(const char* key, std::vector<double>& values) { values = numbers(key, array(key)); }
  void operator()(const char* key, std::vector<std::vector<double>>& rows) {
    rows.clear();
    for (const Json& row : array(key)) {
      require(row.is_array(), "{}: {} must hold lists of numbers, not {}", where_, key, shown(row));
      rows.push_back(numbers(key, row));
    }
  }
  void operator()(const char* key, Json& value) {
    const Json* v = find_known(key);
    value = v ? *v : Json();
  }
  void numbers_if_any(const char* key, std::vector<double>& values) {
    values.clear();
    if (find_known(key)) values = numbers(key, array(key));
  }
  void texts_if_any(const char* key, std::map<std::string, std::string>& values) {
    values.clear();
    const Json* v = find_known(key);
    if (!v) return;
    require(v->is_object(), "{}: {} must be an object, not {}", where_, key, shown(*v));
    for (const auto& [name, value] : v->items()) values[name] = text(name.c_str(), value);
  }
  void texts_if_any(const char* key, std::vector<std::string>& values) {
    values.clear();
    if (!find_known(key)) return;
    for (const Json& item : array(key)) values.push_back(text(key, item));
  }
  template <class T>
  void object(const char* key, T& value) {
    read(find(key), fmt::format("{}, {}", where_, key), value);
  }
  template <class T>
  void object(const char* key, std::optional<T>& value) {
    value.reset();
    if (const Json* v = find_known(key)) read(*v, fmt::format("{}, {}", where_, key), value.emplace());
  }
  template <class T>
  void list_if_any(const char* key, std::vector<T>& values) {
    values.clear();
    if (find_known(key)) list(key, values);
  }
  template <class T>
  void list(const char* key, std::vector<T>& values) {
    const Json& items = array(key);
    values.clear();
    for (size_t i = 0; i < items.size(); ++i)
      read(items[i], fmt::format("{}, {}[{}]", where_, key, i), values.emplace_back());
  }

  template <class T>
  static void read(const Json& json, const std::string& where, T& value) {
    FieldReader reader(json, where);
    fields(reader, value);
    reader.finish();
    if constexpr (requires { check(value, reader); }) check(value, reader);
  }

 private:
  // Every key must have been asked for: a misspelt one would otherwise be lost without a word.
  void finish() const {
    for (const auto& [key, value] : object_.items())
      require(known_.contains(key), "{}: unknown field '{}'. Was the file written by a newer version?", where_, key);
  }
  static std::string shown(const Json& value) {
    if (value.is_structured()) return value.is_object() ? "an object" : "a list";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }
  const Json& find(const char* key) {
    known_.insert(key);
    const auto it = object_.find(key);
    require(it != object_.end(), "{}: the field '{}' is missing", where_, key);
    return *it;
  }
  const Json* find_known(const char* key) {
    known_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  const Json& array(const char* key) {
    const Json& v = find(key);
    require(v.is_array(), "{}: {} must be a list, not {}", where_, key, shown(v));
    return v;
  }
  std::string text(const char* key, const Json& v) const {
    require(v.is_string(), "{}: {} must be text, not {}", where_, key, shown(v));
    return v.get<std::string>();
  }
  template <class E, size_t N>
  E chosen(const char* key, const Json& v, const Choice<E> (&choices)[N]) const {
    const std::optional<E> value = value_of(choices, text(key, v));
    require(value.has_value(), "{}: {} is {}, which is none of {}", where_, key, shown(v),
            fmt::join(names_of(choices), ", "));
    return *value;
  }
  std::vector<double> numbers(const char* key, const Json& list) const {
    std::vector<double> values;
    for (const Json& item : list) values.push_back(number(key, item, kAny));
    return values;
  }
  double number(const char* key, const Json& v, Range range) const {
    require(v.is_number(), "{}: {} must be a number, not {}", where_, key, shown(v));
    const auto value = v.get<double>();
    require(value >= range.least && value <= range.most, "{}: {} is {}, outside {:g} to {:g}", where_, key, shown(v),
            range.least, range.most);
    return value;
  }
  int64_t count(const char* key, const Json& v, CountRange range) const {
    require(v.is_number_integer(), "{}: {} must be a whole number, not {}", where_, key, shown(v));
    const bool fits = !v.is_number_unsigned() || v.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    const int64_t value = fits ? v.get<int64_t>() : INT64_MAX;
    require(fits && value >= range.least && value <= range.most, "{}: {} is {}, outside {} to {}", where_, key,
            shown(v), range.least, range.most);
    return value;
  }

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

template <class T>
Json write_fields(const T& value) {
  return FieldWriter::written(value);
}

// `origin` (a file's name) begins every message.
template <class T>
T read_fields(const Json& json, const std::string& origin) {
  T value{};
  FieldReader::read(json, origin, value);
  return value;
}

}  // namespace longshot
