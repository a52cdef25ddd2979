// Words that stand for the values of an enumeration. A table of them stands beside each enumeration that users name.
#pragma once
#include <cstddef>

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

}  // namespace longshot
