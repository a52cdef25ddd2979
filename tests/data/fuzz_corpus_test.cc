// The seeds of the fuzz targets, and each of them damaged in simple ways: what a build without clang can
// check.
#include "../../fuzz/targets.h"
#include "helpers.h"

namespace longshot {
namespace {

class FuzzCorpus : public testing::TestWithParam<std::string> {
 protected:
  ~FuzzCorpus() override {
    for (const char* suffix : {".tokens", ".idx", ".bin", ".pt", ".safetensors", ".jsonl"}) {
      fs::remove(fuzz::scratch(suffix));
    }
  }
};

TEST_P(FuzzCorpus, EndsNormallyOrWithAnError) {
  const fuzz::Target target = fuzz::targets().at(GetParam());
  int seeds = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(LONGSHOT_SOURCE_DIR) / "fuzz/corpus" / GetParam())) {
    const std::string seed = read_text(entry.path());
    ++seeds;
    fuzz::run(target, seed);
    const size_t step = std::max<size_t>(1, seed.size() / 150);
    for (size_t i = 0; i < seed.size(); i += step) {
      fuzz::run(target, seed.substr(0, i));
      for (const char value : {'\0', '\xFF', '9', '"'}) {
        std::string bad = seed;
        bad[i] = value;
        fuzz::run(target, bad);
      }
    }
  }
  EXPECT_GE(seeds, 2);
}

std::vector<std::string> corpora() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(LONGSHOT_SOURCE_DIR) / "fuzz/corpus")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(FuzzTargets, HaveAFolderOfSeedsEach) {
  std::vector<std::string> names;
  for (const auto& [name, target] : fuzz::targets()) names.push_back(name);
  EXPECT_EQ(names, corpora());
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(corpora()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace longshot
