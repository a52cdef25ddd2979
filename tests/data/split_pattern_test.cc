// Patterns that cut text: the same matches however they are searched, in a time that the text bounds.
#include "data/split_pattern.h"

#include <gmock/gmock.h>

#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;
using Kind = SplitPattern::Kind;

const Watch kNobody;

std::vector<std::pair<size_t, size_t>> matches(const std::string& pattern, std::string_view text,
                                               Kind kind = Kind::kUnknown, const Watch& watch = kNobody) {
  PatternBudget budget(watch);
  budget.grant(text.size());
  std::vector<std::pair<size_t, size_t>> out;
  for (const auto& [begin, end] : SplitPattern(pattern, kind, "t.json").matches(text, budget))
    out.emplace_back(begin, end);
  return out;
}

std::string refusal(const std::string& pattern, std::string_view text) {
  return error_of([&] { matches(pattern, text); });
}

const std::string kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const std::string kQwen =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const std::string kBloom = " ?[^(\\s|[.,!?…。，、।۔،])]+";

// Uncounted and in long stretches, counted now and then in short ones.
TEST(SplitPattern, CountingChangesNothing) {
  for (const std::string& pattern : {kLlama3, kQwen, kBloom, std::string("\\p{N}+"), std::string("(?<=\\s)e.?|本"),
                                     std::string("(?:a|b|t)*?e"), std::string("[^\\s]{40}")}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::string text = odd_text(seed, 300);
      if (seed % 4 == 0) text += std::string(300, ' ') + "x" + std::string(300, 'y') + "\n";
      ASSERT_EQ(matches(pattern, text), matches(pattern, text, Kind::kHarmless)) << pattern << ", seed " << seed;
    }
  }
}

TEST(SplitPattern, LongRunsAreTakenByTheirPatterns) {
  for (const char* run : {" ", "a", "!", "\n", "\n ", "7", "日", "\xE9"}) {
    std::string text;
    while (text.size() < 200'000) text += run;
    for (const std::string& pattern : {kLlama3, kQwen, kBloom}) {
      EXPECT_EQ(refusal(pattern, text), "") << testing::PrintToString(run);
      EXPECT_EQ(refusal(pattern, text + "x"), "") << testing::PrintToString(run);
    }
  }
}

TEST(SplitPattern, WhatGoesOverTheTextAgainAndAgainIsRefused) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::string(120, 'a') + "c";
  for (const char* pattern : {"(?:a?){21}a*[bd]|c", "(?:a+a+)+[bd]|c", "a*a*a*a*[bd]|c", "(?:a?){21}a*+[bd]|c",
                              "(?>a*)a*?(?=a*b)|(?:a?){30}[bd]"})
    EXPECT_THAT(refusal(pattern, text), HasSubstr("256 steps for each byte")) << pattern;
  EXPECT_THAT(refusal("a*+[bd]", std::string(100'000, 'a')), HasSubstr("256 steps for each byte"));
}

TEST(SplitPattern, PiecesOfATextShareItsBudget) {
  const SplitPattern pattern("(?:a?){21}a*[bd]|c", Kind::kUnknown, "t.json");
  PatternBudget budget(kNobody);
  const std::string piece(30, 'a');
  budget.grant(100 * piece.size());
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 100; ++i) pattern.matches(piece, budget);
              }),
              HasSubstr("256 steps"));
}

TEST(SplitPattern, AStopIsHeeded) {
  int asked = 0;
  const Watch watch{.should_stop = [&] { return ++asked > 3; }};
  EXPECT_THROW(matches(kLlama3, odd_text(1, 10'000), Kind::kUnknown, watch), Stopped);
  EXPECT_EQ(asked, 4);
  asked = 2;  // from within one search
  EXPECT_THROW(matches("(?:a?){21}a*[bd]|c", std::string(100'000, 'a'), Kind::kUnknown, watch), Stopped);
  EXPECT_EQ(asked, 4);
}

// \K is not allowed in a lookaround, but PCRE2 does not see it behind a call.
TEST(SplitPattern, MatchesThatEndBeforeTheyBeginAreRefused) {
  for (const char* pattern :
       {"(?(DEFINE)(ab\\K))(?=(?1))a", "(?=(?1))(?(DEFINE)(a\\K))", "b|(?<=(?1))(?(DEFINE)(\\Kab))c"})
    EXPECT_THAT(refusal(pattern, "xababab hello abc\n"), HasSubstr("backwards")) << pattern;
}

TEST(SplitPattern, WhatSearchesByStretchesCannotDoIsNamed) {
  EXPECT_THAT(refusal("\\Ga", "aab"), HasSubstr("\\G"));
  EXPECT_THAT(refusal("a(*COMMIT)b", "aab"), HasSubstr("(*..)"));
  EXPECT_EQ(refusal("[(*]\\(*\\\\G", "aab"), "");
}

}  // namespace
}  // namespace longshot
