#include "base/printable.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace longshot {
namespace {

TEST(Printable, LeavesTextAlone) {
  const std::string text = "layers.0/weight \"x\" \\ \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, SpellsOutWhatATerminalWouldAct) {
  EXPECT_EQ(printable("\x1b[31mred\x07\r\b"), "\\x1b[31mred\\x07\\x0d\\x08");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\u009b31m");  // the one-character form of ESC [
  // NOLINTNEXTLINE(misc-misleading-bidirectional): what is tested
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b"),
            "a\\u202eb");
  EXPECT_EQ(printable("\xFF\x7F"), "\\xff\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, KeepsLinesWhereAsked) {
  EXPECT_EQ(printable("a\n\tb"), "a\\n\\x09b");
  EXPECT_EQ(printable("a\n\tb\x1b\r", true), "a\n\tb\\x1b\\x0d");
}

TEST(Printable, JsonStaysTheSameJson) {
  const Json json{{"a\x7F", "\xC2\x9B\xE2\x80\xAE\xC3\xA9\\"}};  // NOLINT(misc-misleading-bidirectional)
  const std::string text = printable_json(dump_json(json, 2));
  EXPECT_EQ(text, "{\n  \"a\\u007f\": \"\\u009b\\u202e\xC3\xA9\\\\\"\n}");
  EXPECT_EQ(parse_json(text, "it"), json);
}

TEST(Printable, ANameIsCutBetweenCharacters) {
  EXPECT_EQ(shown("a\x1b"), "a\\x1b");
  EXPECT_EQ(shown(std::string(79, 'a') + "\xC3\xA9"
                                         "b"),
            std::string(79, 'a') + "...");
  EXPECT_EQ(shown(std::string(80, 'a')), std::string(80, 'a'));
}

}  // namespace
}  // namespace longshot
