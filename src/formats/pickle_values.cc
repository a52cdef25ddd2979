// Ways to look at values of a pickle that has been read.
#include <algorithm>
#include <array>
#include <ranges>

#include "formats/pickle.h"

namespace longshot {
namespace {

// Nothing is ever called here, so these are harmless too; but a checkpoint has no use for them.
constexpr std::array<std::string_view, 38> kHostileModules{
    "asyncio",  "bdb",       "cProfile", "code",      "codeop",     "commands",        "ctypes",  "doctest",
    "ftplib",   "http",      "imp",      "importlib", "marshal",    "multiprocessing", "nt",      "os",
    "pdb",      "pickle",    "pip",      "pkgutil",   "popen2",     "posix",           "profile", "pty",
    "requests", "runpy",     "shutil",   "site",      "smtplib",    "socket",          "ssl",     "subprocess",
    "sys",      "telnetlib", "timeit",   "urllib",    "webbrowser", "zipimport"};
constexpr std::array<std::string_view, 10> kHostileBuiltins{
    "__import__", "breakpoint", "compile", "delattr", "eval", "exec", "execfile", "input", "open", "setattr"};

}  // namespace

const PickleItems* pickle_fields(PickleValue value) {
  if (const auto* record = value->get<PickleRecord>()) {
    if (!record->state) return nullptr;
    value = record->state;
  }
  const auto* dict = value->get<PickleDict>();
  return dict ? &dict->items : nullptr;
}

PickleValue find_field(const PickleItems& items, std::string_view key) {
  for (const auto& [name, value] : std::views::reverse(items)) {
    if (pickle_text(name) == key) return value;
  }
  return nullptr;
}

std::optional<std::string_view> pickle_text(PickleValue value) {
  const auto* text = value->get<std::string_view>();
  return text ? std::optional(*text) : std::nullopt;
}

std::optional<int64_t> pickle_int(PickleValue value) {
  const auto* number = value->get<int64_t>();
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<double> pickle_number(PickleValue value) {
  if (const auto* number = value->get<int64_t>()) return static_cast<double>(*number);
  const auto* number = value->get<double>();
  return number ? std::optional(*number) : std::nullopt;
}

bool is_global(const PickleGlobal& global, std::string_view module, std::string_view name) {
  return global.module == module && global.name == name;
}

bool is_hostile(const PickleGlobal& g) {
  if (g.module == "builtins" || g.module == "__builtin__") {
    return std::find(kHostileBuiltins.begin(), kHostileBuiltins.end(), g.name) != kHostileBuiltins.end();
  }
  const std::string_view top = g.module.substr(0, g.module.find('.'));
  return std::find(kHostileModules.begin(), kHostileModules.end(), top) != kHostileModules.end();
}

bool is_builtin(const PickleGlobal& g, std::string_view name) {
  return is_global(g, "builtins", name) || is_global(g, "__builtin__", name);
}

}  // namespace longshot
