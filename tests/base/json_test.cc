#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/records.h"
#include "formats/scratch.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of_text(std::string_view text, const JsonLimits& limits = {}) {
  return error_of([&] { parse_json(text, "f.json", limits); });
}

TEST(Json, KeepsEveryKindOfValueAndTheOrderOfMembers) {
  const std::string text =
      R"({"z":[1,-2,0.5,true,false,null,"a\u00e9\n"],"a":{},"m":[[],{"x":[{}]}],"big":18446744073709551615})";
  EXPECT_EQ(dump_json(parse_json(text, "f")), Json::parse(text).dump());
  EXPECT_EQ(dump_json(parse_json_tree(text, "f")), JsonTree::parse(text).dump());
  EXPECT_EQ(parse_json(" 7\n", "f"), 7);
}

TEST(Json, ErrorsNameTheFileTheLineAndTheColumn) {
  EXPECT_THAT(error_of_text("{\"a\": 1,\n \"b\": tru}"),
              AllOf(HasSubstr("f.json: line 2, column 10"), HasSubstr("not valid JSON"), HasSubstr("invalid literal")));
  EXPECT_THAT(error_of_text(""), HasSubstr("f.json: column 0: not valid JSON"));
  EXPECT_THAT(error_of_text("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_text("[1e999]"), HasSubstr("f.json: column 6: not valid JSON: number overflow"));
  EXPECT_THAT(error_of_text("[NaN]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_text("[\"\xFF\"]"), HasSubstr("UTF-8"));
}

TEST(Json, AnErrorIsShortHoweverLongTheText) {
  EXPECT_LT(error_of_text("[\"" + std::string(1 << 20, 'x')).size(), 400u);
  const std::string key(1 << 20, 'k');
  EXPECT_LT(error_of_text("{\"" + key + "\":1,\"" + key + "\":2}").size(), 400u);
}

TEST(Json, AKeyThatComesTwiceIsRefused) {
  EXPECT_THAT(error_of_text("{\"a\": 1,\n\"b\": {\"c\": 1, \"d\": 2, \"c\": 3}}"),
              AllOf(HasSubstr("line 2, column 29"), HasSubstr("the key \"c\" twice")));
  EXPECT_THAT(error_of([] { parse_json_tree("{\"c\":1,\"c\":1}", "f"); }), HasSubstr("twice"));
  EXPECT_NO_THROW(parse_json(R"([{"a":1},{"a":2},{"b":{"a":{"a":0}}}])", "f"));
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "f"));
  EXPECT_THAT(error_of_text(nested(65)), AllOf(HasSubstr("f.json: column 65"), HasSubstr("more than 64")));
  // What overflowed the stack of a recursive reader, or of the destructor of what it had read.
  EXPECT_THAT(error_of_text(nested(1 << 20)), HasSubstr("more than 64"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of_text(objects), HasSubstr("more than 64"));
}

TEST(Json, SizeAndNumberOfValuesAreLimited) {
  EXPECT_THAT(error_of_text("[1, 2, 3]", {.bytes = 8}), AllOf(HasSubstr("9 bytes"), HasSubstr("limit of 8")));
  EXPECT_NO_THROW(parse_json("[1, 2, 3]", "f", {.bytes = 9, .values = 4}));
  EXPECT_THAT(error_of_text("[1, 2, 3]", {.values = 3}), HasSubstr("more than 3 values"));
  EXPECT_THAT(error_of_text(R"({"a": {"b": 1}})", {.values = 2}), HasSubstr("more than 2 values"));
}

std::string object_of(size_t keys) {
  std::string text = "{";
  for (size_t i = 0; i < keys; ++i) text += fmt::format("{}\"key{}\":{}", i ? "," : "", i, i);
  return text + "}";
}

// Quadratic reading of these would take minutes.
TEST(Json, HundredThousandsOfKeysAreRead) {
  const std::string text = object_of(300'000);
  EXPECT_EQ(parse_json(text, "f").size(), 300'000u);
  EXPECT_EQ(parse_json_tree(text, "f").at("key299999"), 299'999);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
template <class Parse>
double bytes_per_byte(const std::string& text, Parse parse) {
  const auto before = mallinfo2();
  const auto value = parse(text, "f", JsonLimits{});
  const auto after = mallinfo2();
  return static_cast<double>(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) /
         static_cast<double>(text.size());
}

TEST(Json, MemoryIsASmallMultipleOfTheText) {
  for (const char* part : {"[]", "{}", "0", "\"\"", "{\"\":0}", "{\"\":{}}", "{\"a\":0,\"b\":0}", "[[[]]]"}) {
    std::string text = "[";
    for (int i = 0; i < 100'000; ++i) text += fmt::format("{}{}", i ? "," : "", part);
    text += "]";
    EXPECT_LT(bytes_per_byte(text, parse_json), kJsonMemory) << part;
    EXPECT_LT(bytes_per_byte(text, parse_json_tree), kJsonMemory) << part;
  }
  EXPECT_LT(bytes_per_byte(object_of(100'000), parse_json), kJsonMemory);
  EXPECT_LT(bytes_per_byte(object_of(100'000), parse_json_tree), kJsonMemory);
}
#endif

TEST(Json, TextThatIsNotUtf8IsWrittenAsReplacement) {
  EXPECT_EQ(dump_json(Json{{"na\xFFme", "\xC3("}}), "{\"na\xEF\xBF\xBDme\":\"\xEF\xBF\xBD(\"}");
  const ScratchDir dir;
  write_json(dir / "f.json", Json{{"run", "\xFE"}});
  EXPECT_EQ(read_json(dir / "f.json")["run"], "\xEF\xBF\xBD");
}

TEST(Json, AFileThatIsNotThereOrTooLargeIsAnError) {
  const ScratchDir dir;
  EXPECT_THAT(error_of([&] { read_json(dir / "none.json"); }), HasSubstr("none.json: cannot open"));
  write_atomically(dir / "large.json", "");
  fs::resize_file(dir / "large.json", uint64_t{6} << 30);  // sparse
  EXPECT_THAT(error_of([&] { read_json(dir / "large.json"); }), HasSubstr("large.json: 6442450944 bytes"));
}

TEST(Records, ComeBackInOrder) {
  const ScratchDir dir;
  append_record(dir / "r.jsonl", {{"step", 1}, {"name", "\xFF"}});
  append_record(dir / "r.jsonl", {{"step", 2}});
  const std::vector<Json> records = read_records(dir / "r.jsonl");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1]["step"], 2);
}

TEST(Records, ALastLineCutShortIsLeftOutAndDroppedByTheNext) {
  const std::string whole = "{\"step\":1}\n{\"step\":2}\n";
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    const ScratchDir dir;
    const size_t lines = (cut + 1) / 11;  // a line that lacks nothing but its end is whole
    EXPECT_EQ(read_records(dir.write("r.jsonl", whole.substr(0, cut))).size(), lines) << cut;
    append_record(dir / "r.jsonl", {{"step", 3}});
    const std::vector<Json> records = read_records(dir / "r.jsonl");
    ASSERT_EQ(records.size(), lines + 1) << cut;
    EXPECT_EQ(records.back()["step"], 3);
  }
}

TEST(Records, ValuesAreCountedOverAllLines) {
  const ScratchDir dir;
  dir.write("r.jsonl", "{\"a\":[0,0]}\n{\"a\":[0,0]}\n{\"a\":[0,0]}\n");
  EXPECT_EQ(read_records(dir / "r.jsonl", {.values = 12}).size(), 3u);
  EXPECT_THAT(error_of([&] { read_records(dir / "r.jsonl", {.values = 11}); }),
              AllOf(HasSubstr("r.jsonl, line 3"), HasSubstr("more than 3 values")));
}

TEST(Records, ATornOrForeignLineInTheMiddleIsNamed) {
  const ScratchDir dir;
  for (const char* bad : {"{\"step\":", "[1]", "7", "hello", "{\"a\":1}{\"a\":2}"}) {
    write_atomically(dir / "r.jsonl", fmt::format("{{\"step\":1}}\n\n{}\n{{\"step\":3}}\n", bad));
    EXPECT_THAT(error_of([&] { read_records(dir / "r.jsonl"); }), HasSubstr("r.jsonl, line 3")) << bad;
  }
}

}  // namespace
}  // namespace longshot
