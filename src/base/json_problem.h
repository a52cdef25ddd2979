// What the JSON library has to say, for people.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

// Of the message of an exception: without its number, its place and what was read last, and cut.
std::string json_problem(std::string_view what);

}  // namespace longshot
