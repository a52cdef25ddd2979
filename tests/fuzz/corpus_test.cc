// The seeds of the fuzz targets, and each of them damaged in ways a fuzzer rarely finds: what a build without clang
// can check. Memory is counted: a small file must not ask for much, whatever it says.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "../../fuzz/targets.h"
#include "base/error.h"
#include "base/json.h"

namespace {

std::atomic<size_t> live_bytes{0}, peak_bytes{0};

void* counted_or_null(size_t size) {
  void* p = std::malloc(size);
  if (!p) return nullptr;
  const size_t now = live_bytes += malloc_usable_size(p);
  if (now > peak_bytes) peak_bytes = now;
  return p;
}

void* counted(size_t size) {
  if (void* p = counted_or_null(size)) return p;
  throw std::bad_alloc();
}

void forget(void* p) {
  live_bytes -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return counted_or_null(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return counted_or_null(size); }
void operator delete(void* p) noexcept { forget(p); }
void operator delete[](void* p) noexcept { forget(p); }
void operator delete(void* p, size_t) noexcept { forget(p); }
void operator delete[](void* p, size_t) noexcept { forget(p); }

namespace longshot {
namespace {

const fs::path kCorpus = fs::path(LONGSHOT_SOURCE_DIR) / "fuzz/corpus";

std::vector<std::string> corpora() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCorpus)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class FuzzCorpus : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const auto& entry : fs::directory_iterator(kCorpus / GetParam())) seeds_.push_back(read_text(entry.path()));
    ASSERT_GE(seeds_.size(), 2u);
  }
  static void TearDownTestSuite() { fs::remove_all(fuzz::scratch()); }

  // Ends normally or with an Error, with a few MiB for buffers beside a multiple of the input.
  static void run(const std::string& bytes) {
    const size_t before = live_bytes;
    peak_bytes = before;
    fuzz::run(fuzz::targets().at(GetParam()), bytes);
    EXPECT_LT(peak_bytes - before, (size_t{32} << 20) + 200 * bytes.size()) << bytes.substr(0, 1000);
  }

  std::vector<std::string> seeds_;
};

TEST_P(FuzzCorpus, CutShortOrWithAChangedByte) {
  for (const std::string& seed : seeds_) {
    run(seed);
    const size_t step = std::max<size_t>(1, seed.size() / 150);
    for (size_t i = 0; i < seed.size(); i += step) {
      run(seed.substr(0, i));
      for (const char value : {'\0', '\xFF', '9', '"'}) {
        std::string bad = seed;
        bad[i] = value;
        run(bad);
      }
    }
  }
}

// A count, size or offset of 4 or 8 bytes may stand anywhere.
TEST_P(FuzzCorpus, WithHugeAndTinyNumbers) {
  for (const std::string& seed : seeds_) {
    const size_t step = std::max<size_t>(1, seed.size() / 200);
    for (size_t i = 0; i + 8 <= seed.size(); i += step) {
      for (const uint64_t value : {uint64_t{0}, uint64_t{1} << 31, (uint64_t{1} << 31) - 1, uint64_t{1} << 40,
                                   uint64_t{1} << 63, (uint64_t{1} << 63) - 1, UINT64_MAX}) {
        for (const size_t width : {size_t{4}, size_t{8}}) {
          std::string bad = seed;
          bad.replace(i, width, reinterpret_cast<const char*>(&value), width);
          run(bad);
        }
      }
    }
  }
}

// Calls use(damaged text) for the JSON text with each value, at any depth, replaced by each of the others.
template <class Use>
void for_each_damage(const std::string& text, Use use) {
  Json json = parse_json(text, "seed");
  const std::vector<Json> others{nullptr,
                                 true,
                                 -1,
                                 1.5,
                                 1e300,
                                 INT64_MIN,
                                 UINT64_MAX,
                                 uint64_t{1} << 32 | 1,
                                 "",
                                 "../x",
                                 "/etc/passwd",
                                 std::string(100'000, 'a'),
                                 Json::array(),
                                 Json::object(),
                                 Json::array({Json::array({Json::object()})}),
                                 Json{{"a", nullptr}}};
  const auto visit = [&](auto&& self, Json& value) -> void {
    Json kept = value;
    for (const Json& other : others) {
      value = other;
      use(json.dump());
    }
    value = kept;
    if (value.is_object()) {
      for (const auto& [key, part] : kept.items()) {
        Json less = value;
        less.erase(key);
        std::swap(value, less);
        use(json.dump());
        std::swap(value, less);
        self(self, value[key]);
      }
    } else if (value.is_array()) {
      for (size_t i = 0; i < std::min<size_t>(value.size(), 8); ++i) self(self, value[i]);
    }
  };
  visit(visit, json);
}

TEST_P(FuzzCorpus, WithValuesOfOtherKinds) {
  for (const std::string& seed : seeds_) {
    if (seed.empty() || seed[0] != '{' || seed.size() > 3000) continue;
    const size_t end = seed.find('\n');  // the first record of several
    try {
      parse_json(seed.substr(0, end), "seed");
    } catch (const Error&) {
      continue;  // a seed that is damaged already
    }
    const std::string rest = end == std::string::npos ? "" : seed.substr(end);
    for_each_damage(seed.substr(0, end), [&](const std::string& bad) { run(bad + rest); });
  }
}

TEST(FuzzTargets, HaveAFolderOfSeedsEach) {
  std::vector<std::string> names;
  for (const auto& [name, target] : fuzz::targets()) names.push_back(name);
  EXPECT_EQ(names, corpora());
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(corpora()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace longshot
