// Where documents begin and end, wherever a chunk does.
#include "data/documents.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "data/gpt2_split.h"
#include "data/utf8.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

constexpr size_t kChunk = 1 << 20;

size_t bpe_cut(std::string_view text) {
  return gpt2::last_cut(text, [](gpt2::Kind kind) { return kind != gpt2::Kind::kSpace; });
}

struct Reading {
  std::vector<std::string> documents;
  std::vector<Documents::Place> places;  // behind each chunk
};

class DocumentsTest : public testing::Test {
 protected:
  Documents reader(const std::string& text) {
    inputs_ = {{.path = dir_.file("x.txt", text),
                .name = "x.txt",
                .bytes = text.size(),
                .split = 0,
                .cuts = cuts_,
                .opener = nullptr}};
    return Documents(inputs_, config_, cut_);
  }
  static Reading read(Documents& documents, std::vector<std::string> before = {}) {
    Reading all{.documents = std::move(before), .places = {}};
    bool open = false;
    for (Chunk chunk; documents.next(chunk);) {
      for (const Segment& s : chunk.segments) {
        if (s.starts) all.documents.emplace_back();
        open = !s.ends;
        all.documents.back() += chunk.text.substr(s.begin, s.end - s.begin);
      }
      all.places.push_back(documents.place());
    }
    EXPECT_FALSE(open);
    return all;
  }
  std::vector<std::string> documents(const std::string& text) {
    Documents all = reader(text);
    return read(all).documents;
  }
  // From every chunk's end on the rest is the same.
  void expect_resumable(const std::string& text) {
    Documents whole = reader(text);
    std::vector<std::vector<Segment>> chunks;
    std::vector<Documents::Place> places;
    for (Chunk chunk; whole.next(chunk);) chunks.push_back(chunk.segments), places.push_back(whole.place());
    for (size_t i = 0; i < places.size(); ++i) {
      Documents rest(inputs_, config_, cut_);
      rest.go_to(Documents::Place::from_json(places[i].to_json(), inputs_, "job"), [] {});
      size_t at = i + 1;
      for (Chunk chunk; rest.next(chunk); ++at) {
        ASSERT_LT(at, chunks.size());
        ASSERT_EQ(chunk.segments.size(), chunks[at].size()) << "chunk " << at << " after a stop at " << i;
        for (size_t s = 0; s < chunk.segments.size(); ++s) {
          const Segment &a = chunk.segments[s], &b = chunks[at][s];
          ASSERT_TRUE(a.begin == b.begin && a.end == b.end && a.starts == b.starts && a.ends == b.ends &&
                      a.split == b.split && a.number == b.number && a.line == b.line);
        }
      }
      ASSERT_EQ(at, chunks.size());
    }
  }
  TemporaryDir dir_;
  DocumentConfig config_{.format = TextFormat::kText, .separator = "", .allow_binary = true};
  Documents::Cut cut_ = cut_behind_space;
  std::vector<uint64_t> cuts_;
  std::vector<DocumentInput> inputs_;
};

// The first document ends `early` bytes before the edge of a chunk.
TEST_F(DocumentsTest, SeparatorsOnTheEdgeOfAChunkCount) {
  for (const char* separator : {"%%", "- -"}) {
    for (const auto& cut : {Documents::Cut(cut_behind_space), Documents::Cut(bpe_cut)}) {
      config_.separator = separator;
      cut_ = cut;
      const std::string mark = std::string(separator) + "\n";
      for (size_t early = 0; early < 12; ++early) {
        std::vector<std::string> expected{std::string(kChunk - early - 1, 'x') + "\n", "two words\n", "three\n"};
        expected[0][kChunk / 2] = ' ';
        EXPECT_EQ(documents(expected[0] + mark + expected[1] + mark + expected[2]), expected) << separator << early;
        EXPECT_EQ(documents(expected[0] + mark + mark + expected[1] + mark + expected[2]), expected) << early;
      }
    }
  }
}

TEST_F(DocumentsTest, ThousandsOfDocumentsAreAllFound) {
  config_.separator = "<end>";
  std::mt19937_64 random(1);
  std::vector<std::string> expected;
  std::string text;
  for (int i = 0; i < 9000; ++i) {
    std::string document;
    for (uint64_t words = 1 + random() % 150; words > 0; --words)
      document += "word" + std::string(random() % 3, 's') + " ";
    expected.push_back(document + "\n");
    text += expected.back() + "<end>\n";
  }
  EXPECT_EQ(documents(text), expected);
  expect_resumable(text);
}

// The rule itself, over a whole text.
std::vector<std::string> articles(const std::string& text) {
  std::vector<std::string> lines, out(1);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  const auto blank = [&](size_t i) {
    return lines[i].size() <= 65536 && lines[i].find_first_not_of(" \n") == std::string::npos;
  };
  bool has_text = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool around = i > 0 && blank(i - 1) && i + 1 < lines.size() && blank(i + 1);
    if (around && has_text && lines[i].size() <= 65536 && is_title(lines[i])) out.emplace_back();
    out.back() += lines[i];
    has_text |= !blank(i);
  }
  return out;
}

TEST_F(DocumentsTest, ArticlesAreThoseOfTheRuleWhereverChunksEnd) {
  config_.format = TextFormat::kWikiText;
  std::mt19937_64 random(2);
  for (const auto& cut : {Documents::Cut(cut_behind_space), Documents::Cut(bpe_cut)}) {
    cut_ = cut;
    for (int round = 0; round < 6; ++round) {
      std::string text = "\n \n = First = \n \n";
      while (text.size() < 3 * kChunk) {
        switch (random() % 6) {
          case 0:
            text += " \n = Title = \n \n";
            break;
          case 1:
            text += " = No title = \n";
            break;
          case 2:
            text += " \n";
            break;
          case 3:
            text += " \n = = Section = = \n \n";
            break;
          default:
            for (uint64_t n = random() % (round % 2 ? 40 : 30000); n > 0; --n) text += "word ";
            text += "\n";
        }
      }
      EXPECT_EQ(documents(text), articles(text)) << round;
      expect_resumable(text);
    }
  }
}

TEST_F(DocumentsTest, PartsWithoutAShareGetNothing) {
  cuts_ = {10, 10};
  Documents all = reader("123456789\nabc\ndef\n");
  std::vector<int> splits;
  for (Chunk chunk; all.next(chunk);) {
    for (const Segment& s : chunk.segments) splits.push_back(s.split.value());
  }
  EXPECT_THAT(splits, testing::ElementsAre(0, 2));
}

TEST_F(DocumentsTest, LongLinesAreCutInside) {
  config_.separator = "%%";
  std::string line;
  while (line.size() < 5 * kChunk) line += "word ";
  const std::vector<std::string> expected{line + "\n", "two\n"};
  EXPECT_EQ(documents(expected[0] + "%%\n" + expected[1]), expected);
  expect_resumable(expected[0] + "%%\n" + expected[1]);
}

TEST_F(DocumentsTest, APlaceThatCannotBeIsRefused) {
  reader("text\n");
  const Json good = Documents::Place{}.to_json();
  const auto refusal = [&](const char* key, const Json& value) {
    Json bad = good;
    bad[key] = value;
    return error_of([&] { Documents::Place::from_json(bad, inputs_, "job.json"); });
  };
  EXPECT_EQ(refusal("offset", 3), "");
  EXPECT_THAT(refusal("input", 1000000000), HasSubstr("job.json: input is 1000000000"));
  EXPECT_THAT(refusal("part", -5), HasSubstr("part is -5"));
  EXPECT_THAT(refusal("part", 1), HasSubstr("part is 1"));
  EXPECT_THAT(refusal("offset", 1.5), HasSubstr("offset is 1.5"));
  EXPECT_THAT(refusal("begun", "yes"), HasSubstr("begun"));
  EXPECT_NE(error_of([&] { Documents::Place::from_json(Json::array(), inputs_, "job.json"); }), "");
}

}  // namespace
}  // namespace longshot
