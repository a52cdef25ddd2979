// Perplexities as the reference's fairseq-eval-lm printed them for its own checkpoints and data.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/records.h"
#include "context.h"
#include "data/token_set.h"
#include "evaluate/protocol.h"
#include "formats/fairseq_model.h"
#include "references.h"

namespace longshot {
namespace {

struct Printed {
  fs::path folder;
  std::string checkpoint, position, split;
  int64_t window, stride;
  double base2, nats;  // per token: as printed, and summed in double
};

void PrintTo(const Printed& p, std::ostream* out) {
  *out << p.checkpoint << ", " << p.split << ", " << p.window << " by " << p.stride;
}

class Perplexity : public testing::TestWithParam<Printed> {};

TEST_P(Perplexity, IsTheReferences) {
  const Printed& p = GetParam();
  const TorchFile file(p.folder / "checkpoints" / p.checkpoint);
  const FairseqCheckpoint checkpoint(file);
  Transformer model(model_config_of(checkpoint, p.position), false);
  import_weights(checkpoint, model);
  const TokenSet data(p.folder / "data-bin");
  const TokenFile& stream = data.split(p.split);
  const Scores scores =
      score_stream(test_context(), model, {stream, {.window = p.window, .stride = p.stride}, stream.size()}, {});
  ASSERT_EQ(static_cast<int64_t>(scores.losses.size()), stream.size());
  const double nats =
      std::accumulate(scores.losses.begin(), scores.losses.end(), 0.0) / static_cast<double>(stream.size());
  EXPECT_NEAR(nats, p.nats, 2e-6);
  EXPECT_NEAR(nats / std::log(2.0), p.base2, 1e-4);  // the reference adds in float32
}

std::vector<Printed> printed() {
  std::vector<Printed> cases;
  for (const Json& r : read_records(kFixtures / "perplexities.jsonl")) {
    cases.push_back(
        {kFixtures, r["checkpoint"], r["position"], r["split"], r["window"], r["stride"], r["base2"], r["nats"]});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Perplexity, testing::ValuesIn(printed()));

std::vector<Printed> printed_large() {
  const auto alibi = [](const char* split, int64_t window, int64_t stride, double base2, double nats) {
    return Printed{kLargeReference, "alibi_L64_h8_d128.pt", "alibi", split, window, stride, base2, nats};
  };
  const auto sinusoidal = [](const char* split, int64_t window, int64_t stride, double base2, double nats) {
    return Printed{kLargeReference, "sin_L64_h8_d128.pt", "sinusoidal", split, window, stride, base2, nats};
  };
  return if_large<Printed>(
      {alibi("test1", 64, 64, 8.54894065, 5.9256743356), alibi("test1", 1024, 1024, 8.52077960, 5.9061545744),
       alibi("valid", 1024, 1024, 8.37795066, 5.8071525323), alibi("test1", 64, 1, 8.51764583, 5.9039853419),
       sinusoidal("test1", 64, 64, 8.66203594, 6.0040661642), sinusoidal("test1", 1024, 1024, 8.83560085, 6.1243715755),
       sinusoidal("test1", 64, 1, 8.68163871, 6.0176483285)});
}

INSTANTIATE_TEST_SUITE_P(Large, Perplexity, testing::ValuesIn(printed_large()));

}  // namespace
}  // namespace longshot
