#include "run/metrics.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "train/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct MetricsFile {
  explicit MetricsFile(const std::string& text) : run(dir / "run") {
    make_directories(run.path());
    write_atomically(run.metrics(), text);
  }
  ScratchDir dir;
  RunDir run;
};

TEST(Metrics, ALineHoldsWhatIsKnown) {
  EXPECT_EQ(metrics_line({.step = 3, .seconds = 1.5, .valid_loss = 2}).dump(),
            R"({"step":3,"seconds":1.5,"valid_loss":2.0})");
}

TEST(Metrics, OfAStepEachFieldsLastValueCounts) {
  const MetricsFile file(
      "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":2,\"valid_loss\":3}\n{\"step\":2,\"loss\":1}\n");
  const std::vector<MetricsRecord> curve = read_metrics(file.run);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[1].loss, 1.0);
  EXPECT_EQ(curve[1].valid_loss, 3.0);
}

TEST(Metrics, ALineThatGoesBackSupersedesWhatCameAfter) {
  const MetricsFile file(
      "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":3}\n{\"step\":2,\"loss\":7}\n");
  const std::vector<MetricsRecord> curve = read_metrics(file.run);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[1].loss, 7.0);
}

TEST(Metrics, ATornLastLineIsLeftOut) {
  const MetricsFile file("{\"step\":1,\"loss\":5}\n{\"step\":2,\"lo");
  EXPECT_EQ(read_metrics(file.run).size(), 1u);
}

TEST(Metrics, WrongLinesAreNamed) {
  for (const char* line : {"{\"step\":1.5}", "{\"step\":-1}", "{\"step\":1e30}", "{\"loss\":1}", "[]",
                           "{\"step\":1,\"x\":1}", "{\"step\":1,\"loss\":\"low\"}", "{\"step\":1"}) {
    const MetricsFile file(std::string("{\"step\":1}\n") + line + "\n");
    EXPECT_THAT(error_of([&] { read_metrics(file.run); }), AllOf(HasSubstr("metrics.jsonl"), HasSubstr("line 2")))
        << line;
  }
}

}  // namespace
}  // namespace longshot
