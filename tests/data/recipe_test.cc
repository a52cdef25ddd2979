#include "data/recipe.h"

#include <gmock/gmock.h>
#include <zip.h>

#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

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
            .md5 = md5_of(path),
            .members = {"w/train", "w/valid", "w/test"}};
  }
  static bool always(uint64_t, uint64_t) { return true; }
  TemporaryDir dir_;
};

TEST_F(RecipeTest, DownloadsVerifiesAndUnpacks) {
  const fs::path archive = fetch_recipe(recipe("t.zip"), dir_ / "download", always);
  EXPECT_EQ(archive, dir_ / "download/t.zip");
  EXPECT_EQ(zipped_size(archive, "w/valid"), 100000u);
  const auto input = open_zipped(archive, "w/valid");
  std::string text(200000, ' ');
  text.resize(input->read(text));
  EXPECT_EQ(text, std::string(100000, 'x'));
  EXPECT_EQ(input->raw_position(), 100000u);
  EXPECT_THAT(error_of([&] { open_zipped(archive, "w/other"); }), HasSubstr("holds no w/other"));
}

TEST_F(RecipeTest, ADownloadCanBeStopped) {
  EXPECT_EQ(fetch_recipe(recipe("t.zip"), dir_ / "download", [](uint64_t, uint64_t) { return false; }), "");
  EXPECT_FALSE(fs::exists(dir_ / "download/t.zip"));
}

TEST(Md5, TheExamplesOfItsDefinition) {
  const TemporaryDir dir;
  EXPECT_EQ(md5_of(dir.file("empty", "")), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_of(dir.file("abc", "abc")), "900150983cd24fb0d6963f7d28e17f72");
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
  EXPECT_TRUE(fs::exists(fetch_recipe(away, dir_ / "download", always)));
}

TEST(Recipes, UnknownNamesGetTheNearest) {
  EXPECT_EQ(find_recipe("wikitext-2").name, "wikitext-2");
  EXPECT_THAT(error_of([] { find_recipe("wikitext-3"); }), HasSubstr("Did you mean"));
}

}  // namespace
}  // namespace longshot
