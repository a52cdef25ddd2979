// A tokenizer.json in the manner of each family against the ids that Hugging Face's tokenizers give for the same texts:
// fixtures that clients/make_tokenizer_files.py makes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

class TokenizerFamily : public testing::TestWithParam<const char*> {
 protected:
  TokenizerFamily()
      : texts_(parsed("tokenizers/texts.json")),
        family_(parsed(fmt::format("tokenizers/{}.json", GetParam()))),
        tokenizer_(hf_tokenizer(family_["tokenizer"].dump(), GetParam())) {}
  static JsonTree parsed(const std::string& name) { return parse_json_tree(read_text(fixture(name)), name); }

  JsonTree texts_, family_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerFamily, IdsEqualThoseOfTheTokenizersPackage) {
  ASSERT_GT(texts_.size(), 50u);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto text = texts_[i].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), family_["ids"][i].get<std::vector<int32_t>>()) << testing::PrintToString(text);
  }
  if (family_["start"].is_null()) return;
  EXPECT_EQ(tokenizer_->start_id(), family_["start"].get<int32_t>());
}

TEST_P(TokenizerFamily, CutsChangeNothing) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::string text = odd_text(seed, 40);
    const std::vector<int32_t> whole = tokenizer_->encode(text);
    for (size_t limit = 0, previous = 0; limit <= text.size(); ++limit) {
      const size_t cut = tokenizer_->cut(std::string_view(text).substr(0, limit));
      ASSERT_LE(cut, limit);
      if (cut == previous) continue;
      previous = cut;
      std::vector<int32_t> parts = tokenizer_->encode(std::string_view(text).substr(0, cut));
      const std::vector<int32_t> rest = tokenizer_->encode(std::string_view(text).substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << testing::PrintToString(text) << " cut at " << cut;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFamily,
                         testing::Values("bloom", "gpt_neox", "falcon", "prefixed", "llama3", "llama2",
                                         "llama2_metaspace", "unknown_fused"),
                         [](const auto& family) { return std::string(family.param); });

TEST(CharacterBpe, TextsComeBack) {
  const std::string name = "tokenizers/llama2.json";
  const JsonTree family = parse_json_tree(read_text(fixture(name)), name);
  const auto tokenizer = hf_tokenizer(family["tokenizer"].dump(), name);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = odd_text(seed, 30);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  EXPECT_EQ(tokenizer->token(tokenizer->encode("the")[0])[0], ' ');
}

}  // namespace
}  // namespace longshot
