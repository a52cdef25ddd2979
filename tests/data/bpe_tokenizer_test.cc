// Byte-level BPE: published encodings of GPT-2, its pre-tokenizer against the regular expression, merging
// against the plain definition.
#include <gmock/gmock.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/bpe_training.h"
#include "data/gpt2_split.h"
#include "data/hf_tokenizer.h"
#include "data/pretokenizer.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// GPT-2 with all its ids, and those of its merges that can act on the strings below.
std::unique_ptr<Tokenizer> gpt2() {
  std::vector<std::string> bytes;  // in the order of GPT-2's ids: the printable ones first
  for (const bool printable : {true, false}) {
    for (int b = 0; b < 256; ++b) {
      const bool is = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      if (is == printable) bytes.emplace_back(1, static_cast<char>(b));
    }
  }
  JsonTree vocab = JsonTree::object();
  for (size_t id = 0; id < bytes.size(); ++id) vocab[byte_level_text(bytes[id])] = id;
  std::string merges = "#version: 0.2\n";
  std::istringstream lines(read_text(fs::path(LONGSHOT_SOURCE_DIR) / "tests/data/gpt2_excerpt.txt"));
  std::string line;
  std::getline(lines, line);  // the remark
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string left, right;
    int id = 0;
    fields >> left >> right >> id;
    vocab[left + right] = id;
    merges += left + " " + right + "\n";
  }
  vocab["<|endoftext|>"] = 50256;
  return hf_tokenizer(gpt2_json(vocab.dump(), merges, "excerpt"), "excerpt");
}

TEST(Gpt2, PublishedEncodings) {
  const auto tokenizer = gpt2();
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->start_id(), 50256);
  // From the tests of tiktoken and GPT-3-Encoder.
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_THAT(tokenizer->encode(" "), ElementsAre(220));
  EXPECT_THAT(tokenizer->encode("\t"), ElementsAre(197));
  EXPECT_THAT(tokenizer->encode("hello world"), ElementsAre(31373, 995));
  EXPECT_THAT(tokenizer->encode("Hello, world!"), ElementsAre(15496, 11, 995, 0));
  EXPECT_THAT(tokenizer->encode("This is some text"), ElementsAre(1212, 318, 617, 2420));
  EXPECT_THAT(tokenizer->encode("indivisible"), ElementsAre(521, 452, 12843));
  EXPECT_THAT(tokenizer->encode("hello 👋 world 🌍"), ElementsAre(31373, 50169, 233, 995, 12520, 234, 235));
}

TEST(Gpt2, TrickyStrings) {
  const auto tokenizer = gpt2();
  const std::vector<std::pair<std::string, std::vector<int32_t>>> cases{
      {"I'm sure they'll say we've won; it's 'round HE'S don't",
       {40, 1101, 1654, 484, 1183, 910, 356, 1053, 1839, 26, 340, 338, 705, 744, 11179, 6, 50, 836, 470}},
      {"  two  spaces\n\n\ttab \n", {220, 734, 220, 9029, 628, 197, 8658, 220, 198}},
      {"naïve cafe\u0301 Ünï", {2616, 38776, 26725, 136, 223, 49363, 77, 26884}},
      {"日本語 한국", {33768, 98, 17312, 105, 45739, 252, 220, 47991, 250, 166, 113, 255}},
      {"x = 3.14159 + 2026", {87, 796, 513, 13, 1415, 19707, 1343, 1160, 2075}},
      {"👩‍👩‍👧 e\u0301²½",
       {41840, 102, 447, 235, 41840, 102, 447, 235, 41840, 100, 304, 136, 223, 31185, 23141}},
      {"a\u00a0b\u3000c\u2003", {64, 1849, 65, 5099, 222, 66, 447, 225}},
      {"ALiBi's 16k-token", {1847, 72, 23286, 338, 1467, 74, 12, 30001}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
}

pcre2_code* compiled(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &error, &at,
                       nullptr);
}

std::vector<std::string> matches(pcre2_code* code, const std::string& text) {
  std::vector<std::string> pieces;
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, nullptr);
  for (size_t at = 0; at < text.size();) {
    const int n = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0, data, nullptr);
    if (n <= 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    at = range[1];
  }
  pcre2_match_data_free(data);
  return pieces;
}

// The regular expression itself, through PCRE2.
std::vector<std::string> pieces_by_regex(const std::string& text) {
  static pcre2_code* const code =
      compiled(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  return matches(code, text);
}

// Characters that came with a later Unicode than PCRE2's.
bool is_new(uint32_t c) {
  static pcre2_code* const unassigned = compiled(R"(\p{Cn})");
  std::string text;
  append_utf8(c, text);
  return char_class(c) != CharClass::kControl && !matches(unassigned, text).empty();
}

std::vector<std::string> pieces_by_hand(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char* next = gpt2::piece_end(p, end);
    pieces.emplace_back(p, next);
    p = next;
  }
  return pieces;
}

std::string only_valid(const std::string& text) {
  std::string out;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    if (c.value != kInvalidCodePoint) out.append(p, c.length);
    p += c.length;
  }
  return out;
}

TEST(Gpt2Split, EqualsTheRegularExpression) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string text = only_valid(odd_text(seed, 30));
    ASSERT_EQ(pieces_by_hand(text), pieces_by_regex(text)) << testing::PrintToString(text);
  }
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 100; ++i) {
      const auto c = static_cast<uint32_t>(random() % (round % 2 ? 0x3100 : 0x20000));
      if (c == 0x180E || (c >= 0xD800 && c <= 0xDFFF) || is_new(c))
        continue;  // PCRE2 takes U+180E for a space; Unicode no longer does
      append_utf8(c, text);
      if (random() % 4 == 0) text += ' ';
    }
    ASSERT_EQ(pieces_by_hand(text), pieces_by_regex(text));
  }
}

// Merging as its definition says it: the pair of lowest rank, leftmost, until none is left.
std::vector<int32_t> merged_plainly(std::string_view piece, const std::vector<Merge>& merges) {
  std::vector<int32_t> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t m = 0; m < best; ++m) {
        if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) best = m, place = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[place] = merges[best].joined;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

WordCounts counted_pieces(const std::string& text) {
  WordCounts counts;
  for (const std::string& piece : pieces_by_hand(text)) counts.add(piece);
  return counts;
}

TEST(Bpe, MergingEqualsItsDefinitionForShortAndLongPieces) {
  std::mt19937_64 random(3);
  const auto random_piece = [&](size_t size) {
    std::string piece;
    while (piece.size() < size) piece += "ab"[random() % 2], piece += "abc"[random() % 3];
    return piece.substr(0, size);
  };
  WordCounts counts;
  for (int i = 0; i < 300; ++i) counts.add(random_piece(1 + random() % 20));
  const std::vector<Merge> merges = learn_merges(counts, 60);
  ASSERT_GE(merges.size(), 40u);
  BpeSymbols symbols;
  for (int b = 0; b < 256; ++b) symbols.bytes[static_cast<size_t>(b)] = b;
  const BpeMerges bpe(merges);
  BpeMerges::Scratch scratch;
  for (size_t size = 0; size < 150; ++size) {
    const std::string piece = random_piece(size);
    std::vector<int32_t> ids;
    scratch.ids.clear();
    symbols.append(piece, scratch.ids);
    bpe.append(scratch, ids);
    ASSERT_EQ(ids, merged_plainly(piece, merges)) << piece;
  }
}

// Learning as its definition says it: count all pairs anew each time.
TEST(Bpe, LearningEqualsItsDefinition) {
  const WordCounts counts =
      counted_pieces(odd_text(5, 4000) + " the cat and the hat sat on the mat; aaaa aaaaaa abababab");
  const std::vector<Merge> learnt = learn_merges(counts, 120);
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  for (size_t i = 0; i < counts.size(); ++i) {
    auto& [ids, count] = words.emplace_back();
    for (const char c : counts.word(i)) ids.push_back(static_cast<unsigned char>(c));
    count = static_cast<int64_t>(counts.count(i));
  }
  ASSERT_GE(learnt.size(), 120u);
  for (const Merge& merge : learnt) {
    std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
    for (const auto& [ids, count] : words) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += count;
    }
    auto best = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    ASSERT_EQ(best->second, (pairs[{merge.left, merge.right}])) << merge.joined;
    ASSERT_EQ(best->first, std::pair(merge.left, merge.right)) << merge.joined;
    for (auto& [ids, count] : words) {
      std::vector<int32_t> next;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool joins = i + 1 < ids.size() && ids[i] == merge.left && ids[i + 1] == merge.right;
        next.push_back(joins ? merge.joined : ids[i]);
        i += joins;
      }
      ids = next;
    }
  }
}

std::unique_ptr<Tokenizer> trained(size_t tokens) {
  return hf_tokenizer(trained_bpe_json(learn_merges(counted_pieces(odd_text(11, 5000)), tokens)), "trained");
}

TEST(Bpe, AnyBytesRoundTrip) {
  const auto tokenizer = trained(300);
  EXPECT_EQ(tokenizer->vocab_size(), 256 + 300 + 1);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = odd_text(seed, 60);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
  std::mt19937_64 random(2);
  std::string noise(20000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(noise)), noise);
  const std::string one_line(3'000'000, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(one_line)), one_line);
}

TEST(Bpe, CutsChangeNothing) {
  const auto tokenizer = trained(300);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = odd_text(seed, 40);
    const std::vector<int32_t> whole = tokenizer->encode(text);
    size_t previous = 0;
    for (size_t limit = 0; limit <= text.size(); ++limit) {
      const size_t cut = tokenizer->cut(std::string_view(text).substr(0, limit));
      ASSERT_LE(cut, limit);
      if (cut == previous) continue;
      previous = cut;
      std::vector<int32_t> parts = tokenizer->encode(std::string_view(text).substr(0, cut));
      const std::vector<int32_t> rest = tokenizer->encode(std::string_view(text).substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, whole) << testing::PrintToString(text) << " cut at " << cut;
    }
  }
}

TEST(Bpe, TheCacheForgetsAndStaysRight) {
  const auto tokenizer = trained(300);
  std::string text;
  for (int i = 0; i < 150000; ++i) text += fmt::format(" w{}", i);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

JsonTree trained_json() { return parse_json_tree(trained(50)->file(), "trained"); }

TEST(TokenizerJson, SavedAndReadAgain) {
  const TemporaryDir dir;
  const auto tokenizer = trained(100);
  tokenizer->save(dir.path());
  const auto again = load_tokenizer(dir.path());
  EXPECT_EQ(again->hash(), tokenizer->hash());
  EXPECT_EQ(again->encode("the cat's 12 日本"), tokenizer->encode("the cat's 12 日本"));
}

TEST(TokenizerJson, AddedTokensAreFoundInTextAndSpecialOnesAreNot) {
  JsonTree json = trained_json();
  const int next = static_cast<int>(json["model"]["vocab"].size());
  json["added_tokens"].push_back({{"id", next}, {"content", "  "}, {"special", false}});
  json["added_tokens"].push_back({{"id", next + 1}, {"content", "    "}, {"special", false}});
  const auto tokenizer = hf_tokenizer(json.dump(), "x");
  EXPECT_EQ(tokenizer->vocab_size(), next + 2);
  EXPECT_THAT(tokenizer->encode("x      y"), ElementsAre('x', next + 1, next, 'y'));
  const std::string text = "x<|endoftext|>y";
  EXPECT_THAT(tokenizer->encode(text), testing::Not(testing::Contains(tokenizer->start_id())));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(TokenizerJson, ManyAddedTokensTakeNoTimeInText) {
  JsonTree json = trained_json();
  const int next = static_cast<int>(json["model"]["vocab"].size());
  for (int i = 0; i < 60'000; ++i)
    json["added_tokens"].push_back(
        {{"id", next + i}, {"content", fmt::format("the same{:05}", i)}, {"special", false}});
  const auto tokenizer = hf_tokenizer(json.dump(), "x");
  std::string text;
  while (text.size() < (1 << 17)) text += "the same old text ";
  const std::clock_t start = std::clock();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THAT(tokenizer->encode("the same04321the same"), testing::Contains(next + 4321).Times(1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tokenizer->cut(text), 0u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5);
}

TEST(TokenizerJson, OtherPreTokenizers) {
  JsonTree json = trained_json();
  const auto pieces = [&](const JsonTree& pre, std::string_view text) {
    Pretokenizer::Pieces out, scratch;
    const Watch watch;
    PatternBudget budget(watch);
    Pretokenizer::from_json(pre, "x").split(text, out, scratch, budget);
    return std::vector<std::string>(out.begin(), out.end());
  };
  const JsonTree bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  // BLOOM's.
  const JsonTree split{{"type", "Split"},
                       {"pattern", {{"Regex", " ?[^(\\s|[.,!?…。，、।۔،])]+"}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
  EXPECT_THAT(pieces({{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}, "Hi there, you.  Ok"),
              ElementsAre("Hi", " there", ",", " you", ". ", " Ok"));
  EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", true}}, "a123"), ElementsAre("a", "1", "2", "3"));
  EXPECT_THAT(pieces({{"type", "Digits"}, {"individual_digits", false}}, "a123b"), ElementsAre("a", "123", "b"));
  EXPECT_THAT(pieces({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a?!b"), ElementsAre("a", "?!", "b"));
  EXPECT_THAT(pieces({{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Removed"}}, "a.b."),
              ElementsAre("a", "b"));
  EXPECT_THAT(pieces({{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "MergedWithPrevious"}}, "a.b."),
              ElementsAre("a.", "b."));
  EXPECT_THAT(pieces({{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "MergedWithNext"}}, "a.b."),
              ElementsAre("a", ".b", "."));
  // Inverted, a match is what lies between; neighbours stay apart all the same.
  const auto inverted = [&](const char* behavior) {
    return pieces({{"type", "Split"}, {"pattern", {{"Regex", "[ab]"}}}, {"behavior", behavior}, {"invert", true}},
                  "ab.-ba.");
  };
  EXPECT_THAT(inverted("Removed"), ElementsAre("a", "b", "b", "a"));
  EXPECT_THAT(inverted("Isolated"), ElementsAre("a", "b", ".-", "b", "a", "."));
  EXPECT_THAT(inverted("Contiguous"), ElementsAre("ab", ".-", "ba", "."));
  EXPECT_THAT(inverted("MergedWithPrevious"), ElementsAre("a", "b.-", "b", "a."));
  EXPECT_THAT(inverted("MergedWithNext"), ElementsAre("a", "b", ".-b", "a", "."));
  // U+180E has not been white space since Unicode 6.3.
  EXPECT_THAT(pieces({{"type", "Split"}, {"pattern", {{"Regex", "\\s+"}}}}, "a \u180e b"),
              ElementsAre("a", " ", "\u180e", " ", "b"));
  // Falcon's order: GPT-2's cut is followed by others.
  EXPECT_THAT(pieces({{"type", "Sequence"},
                      {"pretokenizers",
                       {{{"type", "ByteLevel"}, {"add_prefix_space", false}},
                        {{"type", "Split"}, {"pattern", {{"Regex", "[0-9][0-9][0-9]"}}}, {"behavior", "Isolated"}}}}},
                     "in 12345"),
              ElementsAre("in", " ", "123", "45"));

  json["pre_tokenizer"]["add_prefix_space"] = true;
  const auto prefixed = hf_tokenizer(json.dump(), "x");
  EXPECT_EQ(prefixed->encode("the"), prefixed->encode(" the"));
  json["normalizer"] = {{"type", "NFC"}};
  const auto normalised = hf_tokenizer(json.dump(), "x");
  EXPECT_EQ(normalised->encode("cafe\u0301"), normalised->encode("café"));
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  const auto with = [](const std::function<void(JsonTree&)>& change) {
    JsonTree json = trained_json();
    change(json);
    return error_of([&] { hf_tokenizer(json.dump(), "t.json"); });
  };
  EXPECT_EQ(with([](JsonTree&) {}), "");
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["type"] = "Unigram"; }), HasSubstr("'Unigram' is not supported"));
  EXPECT_THAT(with([](JsonTree& j) { j["normalizer"] = {{"type", "Lowercase"}}; }), HasSubstr("'Lowercase'"));
  EXPECT_THAT(with([](JsonTree& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }), HasSubstr("'Whitespace'"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "last"}};
              }),
              HasSubstr("prepend_scheme 'last'"));
  EXPECT_THAT(with([](JsonTree& j) {
                const JsonTree split{{"type", "Split"}, {"pattern", {{"String", "."}}}};
                j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, {{"type", "ByteLevel"}}}}};
              }),
              HasSubstr("add_prefix_space behind another"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "b"}};
              }),
              HasSubstr("of a String only"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(99, 'x')}};
              }),
              HasSubstr("99 bytes"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["end_of_word_suffix"] = "</w>"; }), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["pre_tokenizer"] = nullptr;
                j["model"]["byte_fallback"] = true;
              }),
              HasSubstr("byte_fallback without a token for the byte 0x00"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["added_tokens"].push_back({{"id", 310}, {"content", "<x>"}, {"special", false}, {"lstrip", true}});
              }),
              HasSubstr("has lstrip"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["vocab"].erase("a"); }), HasSubstr("t.json"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["vocab"]["a"] = 1'000'000'000; }), HasSubstr("id 1000000000"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["vocab"]["a"] = -1; }), HasSubstr("id -1"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["vocab"]["a"] = 98; }), HasSubstr("have one id"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["merges"].push_back("zz qq"); }), HasSubstr("not in the vocabulary"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["merges"].push_back(3); }), HasSubstr("not two tokens"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"].erase("merges"); }), HasSubstr("no model.merges"));
  EXPECT_THAT(with([](JsonTree& j) { j["model"]["ignore_merges"] = "yes"; }), HasSubstr("wrong type"));
  EXPECT_THAT(with([](JsonTree& j) {
                j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}};
              }),
              HasSubstr("pattern is wrong"));
}

}  // namespace
}  // namespace longshot
