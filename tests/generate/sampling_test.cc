#include "generate/sampling.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace longshot {
namespace {

// p = 0.4, 0.3, 0.2, 0.06, 0.04
const std::vector<float> kLogP = {std::log(0.3f), std::log(0.4f), std::log(0.06f), std::log(0.2f), std::log(0.04f)};
constexpr SamplingConfig kPlain{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};

std::vector<int32_t> ids(const std::vector<Candidate>& all) {
  std::vector<int32_t> out;
  for (const Candidate& c : all) out.push_back(c.id);
  return out;
}

TEST(Sampling, WithoutCutsItIsTheModelsDistribution) {
  const auto all = candidates(kLogP, {}, kPlain);
  EXPECT_THAT(ids(all), testing::ElementsAre(1, 0, 3, 2, 4));
  const double want[] = {0.4, 0.3, 0.2, 0.06, 0.04};
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i].probability, want[i], 1e-6);
}

TEST(Sampling, TopK) {
  SamplingConfig config = kPlain;
  config.top_k = 2;
  const auto all = candidates(kLogP, {}, config);
  EXPECT_THAT(ids(all), testing::ElementsAre(1, 0));
  EXPECT_NEAR(all[0].probability, 4.0 / 7, 1e-6);
}

// Against sorting all of a large vocabulary: with ties, numbers that are not, penalties.
TEST(Sampling, TheMostProbableOfManyAreFound) {
  std::vector<float> log_p(5000);
  for (size_t i = 0; i < log_p.size(); ++i)
    log_p[i] = -static_cast<float>(random_bits(3, Stream::kTest, 8, i) % 900) / 64 - 1;
  log_p[17] = -HUGE_VALF, log_p[4999] = -0.5f, log_p[2] = NAN;
  const std::vector<int32_t> before = {4999, 5, 4999, 6};
  for (const double penalty : {1.0, 3.0}) {
    std::vector<std::pair<double, int32_t>> sorted;
    for (size_t i = 0; i < log_p.size(); ++i) {
      const bool recent = penalty > 1 && (i == 4999 || i == 5 || i == 6);
      if (i != 2) sorted.emplace_back(-log_p[i] * (recent ? penalty : 1.0), static_cast<int32_t>(i));
    }
    std::ranges::sort(sorted);
    for (const int64_t k : {1, 2, 40, 1000}) {
      SamplingConfig config = kPlain;
      config.top_k = k, config.repetition_penalty = penalty;
      std::vector<int32_t> want;
      for (int64_t i = 0; i < k; ++i) want.push_back(sorted[static_cast<size_t>(i)].second);
      EXPECT_EQ(ids(candidates(log_p, before, config)), want) << k << " " << penalty;
      config.temperature = 0;
      EXPECT_EQ(ids(candidates(log_p, before, config)), std::vector<int32_t>{want[0]});
    }
  }
}

TEST(Sampling, TopPKeepsTheTokenThatReachesIt) {
  SamplingConfig config = kPlain;
  config.top_p = 0.69;
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1, 0));
  config.top_p = 0.71;
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1, 0, 3));
  config.top_p = 1e-9;
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1));
  config.top_p = 0.69, config.top_k = 3;  // of the three, renormalised: 0.444, 0.333 reach it
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1, 0));
}

TEST(Sampling, MinPIsRelativeToTheLikeliest) {
  SamplingConfig config = kPlain;
  config.min_p = 0.14;  // 0.056 of 1
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1, 0, 3, 2));
}

TEST(Sampling, TemperatureComesLast) {
  SamplingConfig config = kPlain;
  config.temperature = 0.5, config.top_p = 0.71;
  const auto all = candidates(kLogP, {}, config);  // squares of 0.4, 0.3, 0.2
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[0].probability, 0.16 / 0.29, 1e-6);
  EXPECT_NEAR(all[2].probability, 0.04 / 0.29, 1e-6);
  config.temperature = 0;
  EXPECT_THAT(ids(candidates(kLogP, {}, config)), testing::ElementsAre(1));
}

TEST(Sampling, RepetitionIsPenalisedInsideItsWindow) {
  SamplingConfig config = kPlain;
  config.repetition_penalty = 2, config.repetition_window = 2;
  const std::vector<int32_t> before = {0, 1, 1, 3};  // recent: 1 and 3
  const auto all = candidates(kLogP, before, config);
  const double sum = 0.16 + 0.3 + 0.04 + 0.06 + 0.04;  // p^2 of the recent ones
  EXPECT_EQ(all[0].id, 0);
  EXPECT_NEAR(all[0].probability, 0.3 / sum, 1e-6);
  EXPECT_NEAR(all[1].probability, 0.16 / sum, 1e-6);
}

TEST(Sampling, TiesGoByIdAndGreedyTakesTheFirst) {
  const std::vector<float> flat(7, std::log(1 / 7.0f));
  SamplingConfig config = kPlain;
  config.temperature = 0;
  EXPECT_EQ(candidates(flat, {}, config)[0].id, 0);
  EXPECT_THAT(ids(candidates(flat, {}, kPlain)), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Pearson's statistic of 100,000 draws against the exact distribution; 18.47 is the 99.9% point with 4 degrees of freedom.
TEST(Sampling, DrawsFollowTheDistribution) {
  const auto all = candidates(kLogP, {}, kPlain);
  std::vector<double> counts(kLogP.size());
  constexpr int kDraws = 100000;
  for (uint64_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<size_t>(draw(all, uniform01(random_bits(5, Stream::kSample, i))))];
  double chi = 0;
  for (const Candidate& c : all) {
    const double want = kDraws * c.probability, off = counts[static_cast<size_t>(c.id)] - want;
    chi += off * off / want;
  }
  EXPECT_LT(chi, 18.47);
  EXPECT_EQ(draw(all, 0), 1);
  EXPECT_EQ(draw(all, 0.9999999999), 4);
}

TEST(Sampling, WrongNumbersAreRefusedByName) {
  const auto complaint = [](SamplingConfig config) -> std::string {
    try {
      config.validate();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({}), "");
  EXPECT_THAT(complaint({.temperature = -1}), testing::HasSubstr("--temperature"));
  EXPECT_THAT(complaint({.temperature = NAN}), testing::HasSubstr("--temperature"));
  EXPECT_THAT(complaint({.top_k = -1}), testing::HasSubstr("--top-k"));
  EXPECT_THAT(complaint({.top_p = 0}), testing::HasSubstr("--top-p"));
  EXPECT_THAT(complaint({.min_p = 1}), testing::HasSubstr("--min-p"));
  EXPECT_THAT(complaint({.repetition_penalty = 0.5}), testing::HasSubstr("--repetition-penalty"));
}

}  // namespace
}  // namespace longshot
