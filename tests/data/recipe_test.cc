#include "data/recipe.h"

#include <gmock/gmock.h>
#include <zip.h>

#include "data/md5.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::string md5(std::string_view text) {
  Md5 hash;
  hash.add(text);
  return hash.hex();
}

TEST(Md5, TheExamplesOfItsDefinition) {
  EXPECT_EQ(md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, PiecesMakeTheSameAsTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Md5 hash;
    hash.add(std::string_view(text).substr(0, cut));
    hash.add(std::string_view(text).substr(cut));
    ASSERT_EQ(hash.hex(), md5(text)) << cut;
  }
}

class RecipeTest : public testing::Test {
 protected:
  // A recipe whose zip is a file on this machine.
  Recipe recipe(const std::string& name) const {
    const fs::path path = dir_ / name;
    int code = 0;
    zip_t* zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    const std::string text(100000, 'x');
    for (const char* member : {"w/train", "w/valid", "w/test"}) {
      zip_file_add(zip, member, zip_source_buffer(zip, text.data(), text.size(), 0), ZIP_FL_OVERWRITE);
    }
    zip_close(zip);
    return {.name = "tiny",
            .urls = {"file:///nowhere/" + name, "file://" + path.string()},
            .md5 = md5(read_text(path)),
            .members = {"w/train", "w/valid", "w/test"}};
  }
  static bool always(uint64_t, uint64_t) { return true; }
  TemporaryDir dir_;
};

TEST_F(RecipeTest, DownloadsVerifiesAndUnpacks) {
  const auto files = fetch_recipe(recipe("t.zip"), dir_ / "download", always);
  for (const fs::path& file : files) EXPECT_EQ(fs::file_size(file), 100000u);
  EXPECT_EQ(files[1].filename(), "valid");
}

TEST_F(RecipeTest, AWrongChecksumIsRefused) {
  Recipe wrong = recipe("t.zip");
  wrong.md5 = std::string(32, '0');
  EXPECT_THAT(error_of([&] { fetch_recipe(wrong, dir_ / "download", always); }), HasSubstr("its md5 is"));
}

TEST_F(RecipeTest, WithoutANetworkOneLineSaysWhatToPutWhere) {
  Recipe away = recipe("t.zip");
  away.urls.resize(1);
  const std::string message = error_of([&] { fetch_recipe(away, dir_ / "download", always); });
  EXPECT_THAT(message, HasSubstr("Put file:///nowhere/t.zip"));
  EXPECT_THAT(message, HasSubstr("download/t.zip and start again"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  // And putting it there is enough.
  fs::copy_file(dir_ / "t.zip", dir_ / "download/t.zip");
  EXPECT_TRUE(fs::exists(fetch_recipe(away, dir_ / "download", always)[0]));
}

TEST(Recipes, UnknownNamesGetTheNearest) {
  EXPECT_EQ(find_recipe("wikitext-2").name, "wikitext-2");
  EXPECT_THAT(error_of([] { find_recipe("wikitext-3"); }), HasSubstr("Did you mean"));
}

}  // namespace
}  // namespace longshot
