// Tokenizers on their way to GGUF and back: the same ids.
#include "data/ggml_vocabulary.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/hf_tokenizer.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> family(const std::string& name) {
  const std::string file = fmt::format("tokenizers/{}.json", name);
  return hf_tokenizer(parse_json_tree(read_text(fixture(file)), file)["tokenizer"].dump(), file);
}

void expect_same(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.vocab_size(), b.vocab_size());
  EXPECT_EQ(a.start_id(), b.start_id());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = odd_text(seed, 40);
    ASSERT_EQ(a.encode(text), b.encode(text)) << testing::PrintToString(text);
  }
}

TEST(GgmlVocabulary, ThereAndBackGivesTheSameIds) {
  for (const char* name : {"bloom", "llama3"}) {
    const auto tokenizer = family(name);
    const GgmlVocabulary v = ggml_vocabulary(*tokenizer);
    expect_same(*tokenizer, *hf_tokenizer(ggml_tokenizer_json(v, name), name));
  }
  EXPECT_EQ(ggml_vocabulary(*family("bloom")).pre, "bloom");
  EXPECT_EQ(ggml_vocabulary(*family("llama3")).pre, "llama-bpe");
  EXPECT_TRUE(ggml_vocabulary(*family("llama3")).add_start);
}

TEST(GgmlVocabulary, BytesStayTheByteTokenizer) {
  const GgmlVocabulary v = ggml_vocabulary(*byte_tokenizer());
  EXPECT_TRUE(v.merges.empty());
  const auto again = hf_tokenizer(ggml_tokenizer_json(v, "x"), "x");
  EXPECT_EQ(again->hash(), byte_tokenizer()->hash());
}

// Scores that fall with the rank of the merge that makes a piece: merging by them is merging by rank.
TEST(GgmlVocabulary, ScoresBecomeMerges) {
  const auto tokenizer = family("llama2");
  const JsonTree json = parse_json_tree(tokenizer->file(), "llama2");
  GgmlVocabulary v{.model = GgmlVocabulary::Model::kLlama, .pre = "default", .tokens = {}, .types = {}};
  v.tokens = read_vocabulary(json, "llama2").tokens;
  v.types.assign(v.tokens.size(), GgmlVocabulary::kNormal);
  v.types[0] = GgmlVocabulary::kUnknown, v.types[1] = v.types[2] = GgmlVocabulary::kControl;
  v.scores.assign(v.tokens.size(), -1e6F);
  std::map<std::string, float> rank;
  for (const JsonTree& merge : json["model"]["merges"]) {
    const std::string joined = merge.is_array() ? merge[0].get<std::string>() + merge[1].get<std::string>() : "";
    ASSERT_NE(joined, "");
    rank.emplace(joined, -static_cast<float>(rank.size()));
  }
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (v.tokens[id].starts_with("<0x")) v.types[id] = GgmlVocabulary::kByte;
    if (rank.contains(v.tokens[id])) v.scores[id] = rank[v.tokens[id]];
  }
  v.unknown = 0, v.start = 1, v.end = 2, v.add_start = true;
  const auto pieces = hf_tokenizer(ggml_tokenizer_json(v, "x"), "x");
  expect_same(*tokenizer, *pieces);

  const GgmlVocabulary again = ggml_vocabulary(*pieces);
  EXPECT_EQ(again.model, GgmlVocabulary::Model::kLlama);
  EXPECT_EQ(again.tokens, v.tokens);
  EXPECT_EQ(again.types, v.types);
  EXPECT_TRUE(again.add_start && again.add_space);
  EXPECT_EQ(hf_tokenizer(ggml_tokenizer_json(again, "x"), "x")->hash(), pieces->hash());
}

TEST(GgmlVocabulary, WhatCannotBeSaidIsNamed) {
  EXPECT_THAT(error_of([] { ggml_vocabulary(*family("gpt_neox")); }), HasSubstr("NFC"));
  EXPECT_THAT(error_of([] { ggml_vocabulary(*family("falcon")); }), HasSubstr("cuts text"));
  EXPECT_THAT(error_of([] { ggml_vocabulary(*family("llama2")); }),
              HasSubstr("normalises"));  // one way of several to a piece
  const auto with = [](const std::function<void(GgmlVocabulary&)>& change) {
    GgmlVocabulary v = ggml_vocabulary(*family("bloom"));
    change(v);
    return error_of([&] { ggml_tokenizer_json(v, "x.gguf"); });
  };
  EXPECT_EQ(with([](GgmlVocabulary&) {}), "");
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.pre = "default"; }), HasSubstr("'default'"));
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.types.pop_back(); }), HasSubstr("types"));
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.model = GgmlVocabulary::Model::kLlama; }), HasSubstr("0 scores"));
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.end = 1 << 20; }), HasSubstr("1048576"));
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.tokens[9] = "\xFF"; }), HasSubstr("not UTF-8"));
  EXPECT_THAT(with([](GgmlVocabulary& v) { v.tokens[9] = v.tokens[8]; }), HasSubstr("two ids"));
  EXPECT_THAT(with([](GgmlVocabulary& v) {
                v.model = GgmlVocabulary::Model::kLlama, v.scores.assign(v.tokens.size(), 0),
                v.tokens[9].assign(1000, 'x');
              }),
              HasSubstr("1000 bytes"));
}

TEST(GgmlVocabulary, TokensThatAreMadeOfEachOtherInTooManyWaysAreRefused) {
  const auto with = [](size_t longest) {
    GgmlVocabulary v{.model = GgmlVocabulary::Model::kLlama, .pre = "default", .tokens = {"</s>"}, .types = {}};
    for (char c = 'a'; c <= 'h'; ++c)
      for (size_t n = 1; n <= longest; ++n) v.tokens.emplace_back(n, c);
    v.scores.assign(v.tokens.size(), 0);
    return error_of([&] { ggml_tokenizer_json(v, "x.gguf"); });
  };
  EXPECT_EQ(with(48), "");
  EXPECT_THAT(with(200), HasSubstr("in so many ways that their merges have more than"));
}

TEST(GgmlVocabulary, TextThatIsNotCutHasNoName) {
  JsonTree json = parse_json_tree(family("bloom")->file(), "bloom");
  json["pre_tokenizer"] = nullptr;
  const auto tokenizer = hf_tokenizer(json.dump(), "bloom");
  EXPECT_THAT(error_of([&] { ggml_vocabulary(*tokenizer); }), HasSubstr("cuts text in a way"));
}

}  // namespace
}  // namespace longshot
