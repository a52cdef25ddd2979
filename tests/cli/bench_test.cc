// `longshot bench`: every row is there, the parts of a step add up, bad libraries get a message. No time is judged.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "base/json.h"
#include "cli/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

// A tiny model, one repetition.
Json bench(const ScratchDir& dir, const std::string& options) {
  const fs::path json = dir / "bench.json";
  const Outcome o = longshot_run(
      dir, fmt::format(
               "bench --layers 1 --dim 32 --heads 2 --vocab 64 --length 16 --batch-tokens 32 --repeat 1 --json {} {}",
               json.string(), options));
  EXPECT_EQ(o.code, 0) << o.err;
  return Json::parse(read_text(json));
}

TEST(Bench, DecodingHasEveryTypeOfWeights) {
  const ScratchDir dir;
  const Json found = bench(dir, "--what decode --decode-shape 1,64,2,320 --decode-prompt 40");
  for (const char* part : {"decode", "prompt"}) {
    ASSERT_EQ(found.at(part).size(), 3u);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(found.at(part)[i].at("weights"), (std::vector<std::string>{"f32", "bf16", "int8"})[i]);
  }
  // int8 fills up to 64 inputs and 64 outputs: smaller matrices would gain nothing.
  EXPECT_GT(found["decode"][0]["bytes"], found["decode"][1]["bytes"]);
  EXPECT_GT(found["decode"][1]["bytes"], found["decode"][2]["bytes"]);
  const Outcome o = longshot_run(dir, "bench --what decode --decode-shape 1,2");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, testing::HasSubstr("--decode-shape"));
}

TEST(Bench, RowsOfKernels) {
  const ScratchDir dir;
  const Json found = bench(dir, "--what gemm,attention --head-dims 16,32 --attention-lengths 24");
  EXPECT_EQ(found["gemm"].size(), 5 * 3 * 4);  // layers, forms, numbers of rows
  EXPECT_EQ(found["attention"].size(), 2 * 3);
  for (const Json& row : found["gemm"]) EXPECT_GT(row["gflops"].get<double>(), 0);
}

TEST(Bench, PartsOfAStepAddUp) {
  const ScratchDir dir;
  const Json found = bench(dir, "--what step");
  ASSERT_EQ(found["step"].size(), 1);
  double sum = 0;
  for (const auto& [zone, share] : found["step"][0]["breakdown"].items()) {
    EXPECT_GE(share.get<double>(), 0) << zone;
    sum += share.get<double>();
  }
  EXPECT_NEAR(sum, 1, 1e-9);
}

TEST(Bench, SlidingWindowsAgreeWithWindowsApart) {
  const ScratchDir dir;
  const Json found = bench(dir, "--what sliding --sliding-lengths 8,200");
  ASSERT_FALSE(found["sliding"].empty());
  for (const Json& row : found["sliding"]) EXPECT_LT(row["largest_difference"].get<double>(), 1e-5);
}

TEST(Bench, ALibraryThatCannotMultiply) {
  const ScratchDir dir;
  Outcome o = longshot_run(dir, "bench --what gemm --blas /nonexistent/libblas.so");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("/nonexistent/libblas.so"));
  o = longshot_run(dir, "bench --what gemm --blas libm.so.6");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("libm.so.6 has neither cblas_sgemm nor dnnl_sgemm"));
}

}  // namespace
}  // namespace longshot
