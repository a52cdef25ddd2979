#include "data/json_lines.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_problem.h"
#include "base/records.h"

namespace longshot {
namespace {

// Keeps the value of one member of the outermost object.
class FieldReader : public nlohmann::json_sax<Json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}
  std::string text;
  bool object = false, found = false, is_string = false;
  std::vector<std::string> keys;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (wanted_) {
      text = std::move(value);
      is_string = true;
    }
    return other();
  }
  bool start_object(size_t) override {
    if (depth_ == 0) object = true;
    return open();
  }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ != 1 || !object) return true;
    wanted_ = !found && name == field_;
    found |= wanted_;
    if (!found && keys.size() < 8) keys.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = json_problem(e.what());
    return false;
  }
  std::string error;

 private:
  static constexpr int kDeepest = 1000;
  bool other() {
    wanted_ = false;
    return true;
  }
  bool open() {
    if (++depth_ <= kDeepest) return other();
    error = "nested too deeply";
    return false;
  }
  bool close() {
    --depth_;
    return true;
  }
  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false;
};

}  // namespace

std::string json_text(std::string_view line, const std::string& field, const std::string& origin) {
  FieldReader reader(field);
  require(Json::sax_parse(line.begin(), line.end(), &reader), "{}: not valid JSON ({})", origin, reader.error);
  require(reader.object, "{}: not a JSON object", origin);
  require(reader.found, "{}: no member '{}'; the first ones are: {}. Choose with --json-field.", origin, field,
          fmt::join(reader.keys, ", "));
  require(reader.is_string, "{}: the member '{}' is not a string", origin, field);
  return std::move(reader.text);
}

}  // namespace longshot
