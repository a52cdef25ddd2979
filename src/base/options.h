// An option is declared once: name, field (whose value is the default) and help. The parser, --help, the config
// file, --print-config and the run's config.toml all read that one declaration.
//
//   struct ModelConfig {
//     int layers = 6;
//     void fields(Options& o) { o.add("layers", layers, "number of blocks"); }
//   };
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "base/files.h"

namespace longshot {

// A named set of option values, as text: [variant.NAME] of a config file.
struct OptionTable {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // option, value as typed
};

struct Option {
  std::string name;  // as on the command line without dashes, and as a key of the config file
  std::string help;
  std::string type;                             // "int", "float", "text", "bool", "list", "files": shown in --help
  std::string group;                            // heading in --help
  std::string initial;                          // default, as typed
  std::function<void(const std::string&)> set;  // parses or throws Error(kUsage) naming the option
  std::function<std::string()> get;             // the value as typed on the command line
  std::function<std::string()> toml;            // the value as TOML
  std::vector<OptionTable>* tables = nullptr;   // type "tables" only, which has neither set nor get
};

using OptionValues = std::map<std::string, std::string>;  // by name, each as it would be typed

class Options {
 public:
  void group(std::string name) { group_ = std::move(name); }

  void add(std::string name, bool& field, std::string help);
  void add(std::string name, int& field, std::string help);
  void add(std::string name, int64_t& field, std::string help);
  void add(std::string name, uint64_t& field, std::string help);
  void add(std::string name, float& field, std::string help);
  void add(std::string name, double& field, std::string help);
  void add(std::string name, std::optional<double>& field, std::string help);   // "" is none
  void add(std::string name, std::optional<int64_t>& field, std::string help);  // the same
  void add(std::string name, std::string& field, std::string help);
  void add(std::string name, std::vector<int64_t>& field, std::string help);            // comma separated
  void add(std::string name, std::vector<double>& field, std::string help);             // comma separated
  void add(std::string name, std::vector<std::string>& field, std::string help);        // comma separated
  void add_files(std::string name, std::vector<std::string>& field, std::string help);  // several arguments
  // One of a fixed set of words.
  void add(std::string name, std::string& field, std::vector<std::string> choices, std::string help);
  // The same, each standing for a value of an enumeration.
  template <class E, size_t N>
  void add(std::string name, E& field, const Choice<E> (&choices)[N], std::string help) {
    Words words{.names = names_of(choices),
                .set = [&field, &choices](size_t i) { field = choices[i].value; },
                .get = [&field, &choices] { return name_of(choices, field); }};
    add_words(std::move(name), std::move(words), std::move(help));
  }
  // Any number of them, comma separated.
  template <class E, size_t N>
  void add(std::string name, std::vector<E>& field, const Choice<E> (&choices)[N], std::string help) {
    WordList words{.names = names_of(choices),
                   .set =
                       [&field, &choices](const std::vector<size_t>& chosen) {
                         field.clear();
                         for (const size_t i : chosen) field.push_back(choices[i].value);
                       },
                   .get =
                       [&field, &choices] {
                         std::vector<std::string> names;
                         for (const E value : field) names.emplace_back(name_of(choices, value));
                         return names;
                       }};
    add_word_list(std::move(name), std::move(words), std::move(help));
  }

  // Tables [name.X] of a config file; their keys are checked by whoever applies them. Not for the command line.
  void add_tables(std::string name, std::vector<OptionTable>& field, std::string help);

  const std::vector<Option>& all() const { return all_; }
  void remove(const std::string& name);  // an option that makes no sense here
  Option& at(const std::string& name);   // unknown: Error(kUsage) that names the nearest
  void set(const std::string& name, const std::string& value) { at(name).set(value); }

  // Sets every key of a TOML file. An unknown key or a value of the wrong type is an error.
  void load_toml(const fs::path& path);
  void load_toml_text(const std::string& text, const std::string& origin);
  OptionValues values() const;
  // Every option with its present value, one per line, help as comment when `with_help`.
  std::string to_toml(bool with_help) const;

 private:
  struct Words {
    std::vector<std::string> names;
    std::function<void(size_t)> set;
    std::function<std::string()> get;
  };
  struct WordList {
    std::vector<std::string> names;
    std::function<void(const std::vector<size_t>&)> set;
    std::function<std::vector<std::string>()> get;
  };
  void add_words(std::string name, Words words, std::string help);
  void add_word_list(std::string name, WordList words, std::string help);
  Option& push(std::string name, std::string help, std::string type);
  std::vector<Option> all_;
  std::string group_;
};

// Of anything that declares its options in fields().
template <class T>
OptionValues option_values(T config) {
  Options options;
  config.fields(options);
  return options.values();
}

// The text of a list as Option::set takes it: a comma inside a member stands behind a backslash.
std::string join_list(const std::vector<std::string>& members);

// The candidate with the smallest edit distance, or "" if none is near enough to be what was meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// " Did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace longshot
