// Text from files on its way to a terminal: names may hold anything, escape sequences too.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

// The text with every control character (below U+0020, U+007F to U+009F), every mark that turns the direction of
// writing and every byte that is not UTF-8 spelled out, as \x1b, \u202e or \n. Line ends and tabs stay where `lines` says so.
std::string printable(std::string_view text, bool lines = false);

// JSON with what `printable` would spell out written as \u202e, which to a reader is the same JSON.
std::string printable_json(std::string_view json);

// A name for a message: printable, and cut after 80 bytes.
std::string shown(std::string_view name);

}  // namespace longshot
