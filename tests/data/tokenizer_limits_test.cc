// What a tokenizer from elsewhere may cost, and that a stop is heeded inside of a text.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/hf_tokenizer.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

JsonTree bytes_json() { return parse_json_tree(trained_bpe_json({}), "bytes"); }

TEST(TokenizerLimits, WhatCostsMoreThanItsSizeIsRefused) {
  const auto with = [](const std::function<void(JsonTree&)>& change) {
    JsonTree json = bytes_json();
    change(json);
    return error_of([&] { hf_tokenizer(json.dump(), "t.json"); });
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return JsonTree{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  const auto steps = [](const char* type, const char* members, size_t count, const JsonTree& step) {
    return JsonTree{{"type", type}, {members, std::vector<JsonTree>(count, step)}};
  };
  const auto normalizers = [&](size_t count, const JsonTree& step) {
    return with([&](JsonTree& j) { j["normalizer"] = steps("Sequence", "normalizers", count, step); });
  };
  EXPECT_EQ(normalizers(1, replace("a", std::string(16, 'a'))), "");
  EXPECT_THAT(normalizers(2, replace("a", std::string(16, 'a'))), HasSubstr("256 times as long"));
  EXPECT_EQ(normalizers(16, replace("aa", "b")), "");
  EXPECT_THAT(normalizers(17, replace("aa", "b")), HasSubstr("more than 16 steps"));
  EXPECT_THAT(normalizers(16, {{"type", "NFC"}}), HasSubstr("times as long"));
  const auto pretokenizers = [&](size_t count) {
    return with([&](JsonTree& j) {
      j["pre_tokenizer"] = steps("Sequence", "pretokenizers", count, {{"type", "Digits"}});
    });
  };
  EXPECT_EQ(pretokenizers(16), "");
  EXPECT_THAT(pretokenizers(17), HasSubstr("more than 16 steps"));
  const auto metaspace = [&](const std::string& replacement) {
    return with([&](JsonTree& j) {
      j["normalizer"] = replace("a", "bb");
      j["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", replacement}};
    });
  };
  EXPECT_EQ(metaspace("\u2581"), "");
  EXPECT_THAT(metaspace(std::string(1000, '_')), HasSubstr("and Metaspace can make a text 2000 times as long"));
  const auto added = [&](size_t bytes, bool special) {
    return with([&](JsonTree& j) {
      const size_t id = j["model"]["vocab"].size();
      j["added_tokens"].push_back({{"id", id}, {"content", std::string(bytes, 'x')}, {"special", special}});
    });
  };
  EXPECT_EQ(added(512, false), "");
  EXPECT_EQ(added(20'000, true), "");
  EXPECT_THAT(added(20'000, false), HasSubstr("has 20000 bytes; at most 512"));
}

TEST(TokenizerLimits, AStopIsHeededInsideOfAText) {
  for (const bool has_added : {false, true}) {
    JsonTree json = bytes_json();
    const size_t next = json["model"]["vocab"].size();
    if (has_added) json["added_tokens"].push_back({{"id", next}, {"content", "xyz"}, {"special", false}});
    const auto tokenizer = hf_tokenizer(json.dump(), "x");
    int asked = 0;
    const Watch watch{.should_stop = [&] { return ++asked > 3; }};
    EXPECT_EQ(tokenizer->encode("short", watch), tokenizer->encode("short"));
    EXPECT_THROW(tokenizer->encode(std::string(1 << 20, 'x'), watch), Stopped);
    EXPECT_EQ(asked, 4);
  }
}

// Unicode's composition a part at a time.
TEST(TokenizerLimits, LongTextsAreComposedAsShortOnes) {
  JsonTree json = bytes_json();
  json["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = hf_tokenizer(json.dump(), "x");
  std::string text, composed;
  while (text.size() < (1 << 20)) text += "日本か\u3099", composed += "日本が";
  while (text.size() < (5 << 19)) text += "e\u0301o\u0308 \u1112\u1161\u11ab", composed += "\u00e9\u00f6 \ud55c";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), composed);
}

}  // namespace
}  // namespace longshot
