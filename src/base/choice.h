// Words that stand for the values of an enumeration. A table of them stands beside each enumeration that users name.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longshot {

template <class E>
struct Choice {
  const char* name;
  E value;
};

// The word for a value.
template <class E, size_t N>
constexpr const char* name_of(const Choice<E> (&choices)[N], E value) {
  for (const Choice<E>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

// The value that a word stands for.
template <class E, size_t N>
constexpr std::optional<E> value_of(const Choice<E> (&choices)[N], std::string_view name) {
  for (const Choice<E>& choice : choices) {
    if (choice.name == name) return choice.value;
  }
  return {};
}

template <class E, size_t N>
std::vector<std::string> names_of(const Choice<E> (&choices)[N]) {
  std::vector<std::string> names;
  for (const Choice<E>& choice : choices) names.emplace_back(choice.name);
  return names;
}

}  // namespace longshot
