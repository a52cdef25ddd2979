// Compressed inputs, .jsonl, directories and globs.
#include "data/text_input.h"

#include <gmock/gmock.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "context.h"
#include "data/documents.h"
#include "data/json_lines.h"
#include "data/prepare.h"
#include "data/token_set.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string xz(const std::string& text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                          reinterpret_cast<uint8_t*>(out.data()), &size, out.size());
  out.resize(size);
  return out;
}

struct Kind {
  const char* suffix;
  std::string (*compress)(const std::string&);
};
const Kind kKinds[] = {{".gz", gzip}, {".zst", zstd}, {".xz", xz}};

std::string read_all(const fs::path& path, size_t step = 1000) {
  const auto input = open_text(path);
  std::string text, block(step, '\0');
  while (const size_t n = input->read(block)) text.append(block, 0, n);
  return text;
}

TEST(TextInput, EveryCompressionGivesTheText) {
  const TemporaryDir dir;
  std::string text = odd_text(1, 200'000);
  for (const Kind& kind : kKinds) {
    for (const std::string& part : {std::string(), std::string("x"), text}) {
      const std::string path = dir.file(std::string("t.txt") + kind.suffix, kind.compress(part));
      EXPECT_TRUE(read_all(path) == part) << kind.suffix;
      EXPECT_TRUE(read_all(path, 1 << 20) == part) << kind.suffix;
      EXPECT_EQ(text_size(path, [] {}), part.size());
    }
    // Two streams one behind the other, as `cat a.gz b.gz` makes them; and no matter what the name says.
    EXPECT_EQ(read_all(dir.file("two", kind.compress("one ") + kind.compress("two"))), "one two") << kind.suffix;
  }
  EXPECT_EQ(read_all(dir.file("plain.txt", "plain")), "plain");
}

TEST(TextInput, DamageIsNamed) {
  const TemporaryDir dir;
  const std::string text = odd_text(2, 3000);
  for (const Kind& kind : kKinds) {
    const std::string whole = kind.compress(text), name = std::string("t") + kind.suffix;
    EXPECT_THAT(error_of([&] { read_all(dir.file(name, whole.substr(0, whole.size() / 2))); }), HasSubstr(name))
        << kind.suffix;
    EXPECT_THAT(error_of([&] { read_all(dir.file(name, whole.substr(0, whole.size() - 1))); }), HasSubstr(name))
        << kind.suffix;
    std::string bad = whole;
    for (size_t i = bad.size() / 2; i < bad.size() / 2 + 8; ++i) bad[i] = static_cast<char>(~bad[i]);
    EXPECT_THAT(error_of([&] { read_all(dir.file(name, bad)); }), HasSubstr(name)) << kind.suffix;
    EXPECT_THAT(error_of([&] { read_all(dir.file(name, "not compressed")); }), HasSubstr("the content is not"))
        << kind.suffix;
    EXPECT_THAT(error_of([&] { read_all(dir.file(name, "")); }), HasSubstr("the content is not")) << kind.suffix;
  }
}

TEST(TextInput, DirectoriesAndGlobsInOrderOfNames) {
  const TemporaryDir dir;
  for (const char* name : {"d/b.txt", "d/a.txt", "d/sub/c.txt", "d/.hidden"}) dir.file(name, "x");
  const auto names = [&](const std::vector<std::string>& inputs) {
    std::vector<std::string> out;
    for (const fs::path& path : expand_inputs(inputs, {}, [] {}))
      out.push_back(path.lexically_relative(dir.path()).string());
    return out;
  };
  EXPECT_THAT(names({(dir / "d").string()}), ElementsAre("d/a.txt", "d/b.txt", "d/sub/c.txt"));
  EXPECT_THAT(names({(dir / "d/*.txt").string()}), ElementsAre("d/a.txt", "d/b.txt"));
  EXPECT_THAT(error_of([&] { names({(dir / "d/*.md").string()}); }), HasSubstr("no file matches"));
  make_directories(dir / "empty");
  EXPECT_THAT(error_of([&] { names({(dir / "empty").string()}); }), HasSubstr("holds no files"));
}

TEST(JsonText, FieldsAreFoundAtTheTopOnly) {
  const auto text = [](const std::string& line, const std::string& field = "text") {
    return json_text(line, field, "f, line 1");
  };
  EXPECT_EQ(text(R"({"id": 1, "text": "a\nb\u00e9\ud83d\ude00\u0000"})"), std::string("a\nbé😀\0", 10));
  EXPECT_EQ(text(R"({"meta": {"text": "no"}, "list": [{"text": "no"}], "text": "yes"})"), "yes");
  EXPECT_EQ(text(R"({"content": "x"})", "content"), "x");
  EXPECT_THAT(error_of([&] { text(R"({"content": "x", "id": 3})"); }),
              testing::AllOf(HasSubstr("f, line 1"), HasSubstr("content, id"), HasSubstr("--json-field")));
  EXPECT_THAT(error_of([&] { text(R"({"text": 3})"); }), HasSubstr("not a string"));
  EXPECT_THAT(error_of([&] { text(R"({"text": ["x"]})"); }), HasSubstr("not a string"));
  EXPECT_THAT(error_of([&] { text("[1]"); }), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of([&] { text("{\"text\": \"x\""); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([&] { text("{\"text\": \"\xFF\"}"); }), HasSubstr("not valid JSON"));
  const std::string unended = error_of([&] { text("{\"text\": \"" + std::string(1 << 20, 'x')); });
  EXPECT_EQ(unended,
            "f, line 1: not valid JSON (syntax error while parsing value - invalid string: missing closing quote)");
  EXPECT_THAT(error_of([&] { text("{\"a\":" + std::string(100000, '[')); }), HasSubstr("nested too deeply"));
}

TEST(JsonLines, ALineIsADocument) {
  const TemporaryDir dir;
  PrepareConfig c;
  c.tokenizer = "byte";
  c.out = (dir / "set").string();
  const std::string lines = "{\"text\": \"one\"}\n\n{\"text\": \"\"}\r\n{\"n\": 1, \"text\": \"two\\n\"}";
  c.train = {dir.file("a.jsonl.zst", zstd(lines)), dir.file("b.jsonl", "{\"text\":\"three\"}\n")};
  prepare(test_context(), c, {});
  const TokenSet set(dir / "set");
  std::vector<int32_t> ids(static_cast<size_t>(set.split("train").size()));
  set.split("train").read(0, ids);
  EXPECT_EQ(set.tokenizer().decode(ids), "one\ntwo\nthree\n");
  EXPECT_THAT(set.split("train").documents(), ElementsAre(0, 4, 8));
  c.train = {dir.file("bad.jsonl", "{\"text\": \"one\"}\n{\"txt\": 1}\n")};
  c.overwrite = true;
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }), HasSubstr("bad.jsonl, line 2"));
}

}  // namespace
}  // namespace longshot
