#include "base/options.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace longshot {
namespace {

using testing::ElementsAre;

struct Lists {
  std::vector<std::string> words = {"first"};
  std::vector<int64_t> numbers;
  Options options;
  Lists() {
    options.add("words", words, "some words");
    options.add("numbers", numbers, "some numbers");
  }
};

TEST(Options, CommasPartAListUnlessBehindABackslash) {
  Lists l;
  l.options.at("words").set(R"(a,b\,c,,d\\,e\f)");
  EXPECT_THAT(l.words, ElementsAre("a", "b,c", "", "d\\", "e\\f"));
  l.options.at("words").set("");
  EXPECT_TRUE(l.words.empty());
  l.options.at("numbers").set("64,128");
  EXPECT_THAT(l.numbers, ElementsAre(64, 128));
  EXPECT_THROW(l.options.at("numbers").set("64,x"), Error);
}

TEST(Options, EveryListIsReadBackAsItWasWritten) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {}, {"plain"}, {"with,comma", "with\\backslash"}, {"ends\\", ",", "a\"b"}}) {
    Lists from, by_text, by_toml;
    from.words = words;
    by_text.options.at("words").set(from.options.at("words").get());
    EXPECT_EQ(by_text.words, words);
    by_toml.options.load_toml_text(from.options.to_toml(false), "test");
    EXPECT_EQ(by_toml.words, words);
  }
}

TEST(Options, ANumberThatIsNotGivenIsEmpty) {
  std::optional<int64_t> count;
  std::optional<double> share = 0.5;
  Options options;
  options.add("count", count, "a number or none");
  options.add("share", share, "a number or none");
  const std::string none = options.to_toml(false);
  options.set("count", "-3"), options.set("share", "");
  EXPECT_EQ(count, -3);
  EXPECT_FALSE(share.has_value());
  const std::string some = options.to_toml(false);
  options.load_toml_text(none, "test");
  EXPECT_FALSE(count.has_value());
  EXPECT_EQ(share, 0.5);
  options.load_toml_text(some, "test");
  EXPECT_EQ(count, -3);
  EXPECT_FALSE(share.has_value());
  EXPECT_THROW(options.set("count", "1.5"), Error);
}

enum class Fruit { kApple, kPear, kPlum };
constexpr Choice<Fruit> kFruits[] = {{"apple", Fruit::kApple}, {"pear", Fruit::kPear}, {"plum", Fruit::kPlum}};

TEST(Options, WordsOfAListAreValuesOfAnEnumeration) {
  std::vector<Fruit> basket = {Fruit::kPlum};
  Options options;
  options.add("basket", basket, kFruits, "what is in it");
  EXPECT_EQ(options.at("basket").initial, "plum");
  options.set("basket", "pear,apple");
  EXPECT_THAT(basket, ElementsAre(Fruit::kPear, Fruit::kApple));
  EXPECT_EQ(options.at("basket").get(), "pear,apple");
  const std::string toml = options.to_toml(false);
  options.set("basket", "");
  EXPECT_TRUE(basket.empty());
  options.load_toml_text(toml, "test");
  EXPECT_THAT(basket, ElementsAre(Fruit::kPear, Fruit::kApple));
  try {
    options.set("basket", "apple,paer");
    ADD_FAILURE() << "paer is no fruit";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("Did you mean 'pear'?"));
    EXPECT_EQ(e.kind(), Error::Kind::kUsage);
  }
  EXPECT_THAT(basket, ElementsAre(Fruit::kPear, Fruit::kApple)) << "what is refused changes nothing";
}

}  // namespace
}  // namespace longshot
