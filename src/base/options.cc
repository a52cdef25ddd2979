#include "base/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <sstream>
#include <type_traits>

#include "base/error.h"
#include "base/toml.h"

namespace longshot {
namespace {

template <class T>
T parse_number(const std::string& name, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  require_usage(error != std::errc::result_out_of_range, "--{}: {} is out of range", name, text);
  require_usage(error == std::errc() && rest == end, "--{}: '{}' is not {}", name, text,
                std::is_integral_v<T> ? "a whole number" : "a number");
  return value;
}

bool parse_bool(const std::string& name, const std::string& text) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "0" || text == "no" || text == "off") return false;
  fail_usage("--{}: '{}' is neither true nor false", name, text);
}

// "a,b\,c": commas part the members of a list; behind a backslash they belong to a member.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  bool open = false;  // a member has begun
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::exchange(open, true)) parts.emplace_back();
    if (text[i] == ',') {
      open = false;
    } else {
      if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ',' || text[i + 1] == '\\')) ++i;
      parts.back() += text[i];
    }
  }
  return parts;
}

std::string toml_text(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// A number typed as it would be typed again: shortest form that reads back to the same value.
template <class T>
std::string number_text(T value) {
  return fmt::format("{}", value);
}

// TOML's whole numbers end at 2^63 - 1: larger ones are written as text, which is read as well.
template <class T>
std::string toml_number(T value) {
  std::string text = number_text(value);
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (value > static_cast<T>(INT64_MAX)) return toml_text(text);
  }
  if (std::is_floating_point_v<T> && text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

Option& Options::push(std::string name, std::string help, std::string type) {
  Option option;
  option.name = std::move(name);
  option.help = std::move(help);
  option.type = std::move(type);
  option.group = group_;
  all_.push_back(std::move(option));
  return all_.back();
}

namespace {

template <class T>
void bind_number(Option& o, T& field) {
  o.set = [name = o.name, &field](const std::string& text) { field = parse_number<T>(name, text); };
  o.get = [&field] { return number_text(field); };
  o.toml = [&field] { return toml_number(field); };
  o.initial = o.get();
}

template <class T>
void bind_number(Option& o, std::optional<T>& field) {
  o.set = [name = o.name, &field](const std::string& text) {
    field = text.empty() ? std::nullopt : std::optional(parse_number<T>(name, text));
  };
  o.get = [&field] { return field ? number_text(*field) : ""; };
  o.toml = [&field] { return field ? toml_number(*field) : "\"\""; };
  o.initial = o.get();
}

template <class T, class Parse, class Print>
void bind_list(Option& o, std::vector<T>& field, Parse parse, Print print) {
  o.set = [name = o.name, &field, parse](const std::string& text) {
    std::vector<T> values;
    for (const std::string& part : split_list(text)) values.push_back(parse(name, part));
    field = std::move(values);
  };
  o.get = [&field] {
    std::vector<std::string> parts;
    parts.reserve(field.size());
    for (const T& value : field) parts.push_back(fmt::format("{}", value));
    return join_list(parts);
  };
  o.toml = [&field, print] {
    std::vector<std::string> parts;
    parts.reserve(field.size());
    for (const T& value : field) parts.push_back(print(value));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
  o.initial = o.get();
}

std::string toml_list(std::vector<std::string> words) {
  for (std::string& word : words) word = toml_text(word);
  return fmt::format("[{}]", fmt::join(words, ", "));
}

// Of a word among those that can be chosen.
size_t place_of(const std::string& option, const std::vector<std::string>& names, const std::string& word) {
  const auto found = std::find(names.begin(), names.end(), word);
  require_usage(found != names.end(), "--{}: '{}' is not one of {}.{}", option, word, fmt::join(names, ", "),
                did_you_mean(word, names));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

void Options::add(std::string name, int& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "int"), f);
}
void Options::add(std::string name, int64_t& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "int"), f);
}
void Options::add(std::string name, uint64_t& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "int"), f);
}
void Options::add(std::string name, float& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "float"), f);
}
void Options::add(std::string name, double& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "float"), f);
}

void Options::add(std::string name, std::optional<double>& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "float"), f);
}
void Options::add(std::string name, std::optional<int64_t>& f, std::string help) {
  bind_number(push(std::move(name), std::move(help), "int"), f);
}

void Options::add(std::string name, bool& field, std::string help) {
  Option& o = push(std::move(name), std::move(help), "bool");
  o.set = [name = o.name, &field](const std::string& text) { field = parse_bool(name, text); };
  o.get = o.toml = [&field] { return std::string(field ? "true" : "false"); };
  o.initial = o.get();
}

void Options::add(std::string name, std::string& field, std::string help) {
  Option& o = push(std::move(name), std::move(help), "text");
  o.set = [&field](const std::string& text) { field = text; };
  o.get = [&field] { return field; };
  o.toml = [&field] { return toml_text(field); };
  o.initial = o.get();
}

void Options::add(std::string name, std::string& field, std::vector<std::string> choices, std::string help) {
  Words words{.names = choices,
              .set = [&field, names = std::move(choices)](size_t i) { field = names[i]; },
              .get = [&field] { return field; }};
  add_words(std::move(name), std::move(words), std::move(help));
}

void Options::add_words(std::string name, Words words, std::string help) {
  Option& o = push(std::move(name), std::move(help) + fmt::format(" ({})", fmt::join(words.names, ", ")), "text");
  o.set = [name = o.name, names = std::move(words.names), set = std::move(words.set)](const std::string& text) {
    set(place_of(name, names, text));
  };
  o.get = std::move(words.get);
  o.toml = [get = o.get] { return toml_text(get()); };
  o.initial = o.get();
}

void Options::add_word_list(std::string name, WordList words, std::string help) {
  Option& o = push(std::move(name), std::move(help) + fmt::format(" ({})", fmt::join(words.names, ", ")), "list");
  o.set = [name = o.name, names = std::move(words.names), set = std::move(words.set)](const std::string& text) {
    std::vector<size_t> chosen;
    for (const std::string& part : split_list(text)) chosen.push_back(place_of(name, names, part));
    set(chosen);
  };
  o.get = [get = words.get] { return join_list(get()); };
  o.toml = [get = std::move(words.get)] { return toml_list(get()); };
  o.initial = o.get();
}

void Options::add(std::string name, std::vector<int64_t>& field, std::string help) {
  bind_list(push(std::move(name), std::move(help), "list"), field, parse_number<int64_t>, toml_number<int64_t>);
}
void Options::add(std::string name, std::vector<double>& field, std::string help) {
  bind_list(push(std::move(name), std::move(help), "list"), field, parse_number<double>, toml_number<double>);
}
void Options::add(std::string name, std::vector<std::string>& field, std::string help) {
  bind_list(
      push(std::move(name), std::move(help), "list"), field,
      [](const std::string&, const std::string& part) { return part; }, toml_text);
}

void Options::add_files(std::string name, std::vector<std::string>& field, std::string help) {
  add(std::move(name), field, std::move(help));
  all_.back().type = "files";
}

void Options::add_tables(std::string name, std::vector<OptionTable>& field, std::string help) {
  push(std::move(name), std::move(help), "tables").tables = &field;
}

void Options::remove(const std::string& name) {
  std::erase_if(all_, [&](const Option& o) { return o.name == name; });
}

Option& Options::at(const std::string& name) {
  std::vector<std::string> names;
  for (Option& option : all_) {
    if (option.name == name) return option;
    names.push_back(option.name);
  }
  fail_usage("unknown option '{}'.{}", name, did_you_mean(name, names));
}

namespace {

std::string text_of(const std::string& origin, std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return number_text(whole->get());
  if (const auto* real = node.as_floating_point()) return number_text(real->get());
  if (const auto* list = node.as_array()) {
    std::vector<std::string> parts;
    for (const toml::node& item : *list) parts.push_back(text_of(origin, key, item));
    return join_list(parts);
  }
  fail_usage("{}: key '{}' is a table or a date; options are plain values", origin, key);
}

// [variant.NAME]: a table of plain values.
OptionTable table_of(const std::string& origin, std::string_view name, const toml::node& node) {
  const toml::table* table = node.as_table();
  require_usage(table != nullptr, "'{}' must be a table of options", name);
  OptionTable out{.name = std::string(name), .values = {}};
  for (auto&& [key, value] : *table) out.values.emplace_back(key.str(), text_of(origin, key.str(), value));
  return out;
}

void load_tables(const std::string& origin, const toml::node& node, Option& option) {
  const toml::table* tables = node.as_table();
  require_usage(tables != nullptr, "'{}' must hold tables: [{}.NAME]", option.name, option.name);
  std::map<std::pair<toml::source_index, toml::source_index>, OptionTable> in_order;  // toml++ sorts by name
  for (auto&& [name, table] : *tables) {
    const toml::source_position at = table.source().begin;
    in_order[{at.line, at.column}] = table_of(origin, name.str(), table);
  }
  option.tables->clear();
  for (auto& [place, table] : in_order) option.tables->push_back(std::move(table));
}

void load_table(const toml::table& table, const std::string& origin, Options& options) {
  for (auto&& [key, node] : table) {
    try {
      Option& option = options.at(std::string(key.str()));
      if (option.tables) {
        load_tables(origin, node, option);
      } else {
        option.set(text_of(origin, key.str(), node));
      }
    } catch (const Error& e) {
      fail_usage("{}:{}: {}", origin, node.source().begin.line, e.what());
    }
  }
}

}  // namespace

std::string join_list(const std::vector<std::string>& members) {
  std::string text;
  for (size_t p = 0; p < members.size(); ++p) {
    if (p > 0) text += ',';
    for (const char c : members[p]) {
      if (c == ',' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text;
}

void Options::load_toml(const fs::path& path) { load_table(read_toml(path), path.string(), *this); }

void Options::load_toml_text(const std::string& text, const std::string& origin) {
  load_table(parse_toml(text, origin), origin, *this);
}

OptionValues Options::values() const {
  OptionValues values;
  for (const Option& o : all_) values[o.name] = o.get();
  return values;
}

std::string Options::to_toml(bool with_help) const {
  std::string out;
  std::string heading;
  for (const Option& o : all_) {
    if (o.tables) continue;
    if (o.group != heading) out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", heading = o.group);
    const std::string line = fmt::format("{} = {}", o.name, o.toml());
    out += with_help ? fmt::format("{:<40} # {}\n", line, o.help) : line + "\n";
  }
  for (const Option& o : all_) {
    for (const OptionTable& table : o.tables ? *o.tables : std::vector<OptionTable>{}) {
      out += fmt::format("\n[{}.{}]\n", o.name, toml_text(table.name));
      for (const auto& [key, value] : table.values) out += fmt::format("{} = {}\n", key, toml_text(value));
    }
  }
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(word.size() / 2, 2);  // further than this was not meant
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t change = diagonal + (word[i - 1] != candidate[j - 1]);
        diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
      }
    }
    if (row.back() < best_distance || (row.back() == best_distance && best.empty())) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string guess = nearest(word, candidates);
  return guess.empty() ? "" : fmt::format(" Did you mean '{}'?", guess);
}

}  // namespace longshot
