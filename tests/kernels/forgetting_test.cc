// A cache that forgets: what it leaves out is never more than it says, whatever the stream.
#include "kernels/forgetting.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/error.h"
#include "kernels/attention_call.h"
#include "kernels/attention_fixture.h"

namespace longshot {
namespace {

constexpr float kEpsilon = 0x1p-24f;

TEST(DroppedKeys, TheMassIsAnUpperBound) {
  for (const double slope : {0.5, 0.03, 0.004}) {
    DroppedKeys dropped;
    EXPECT_TRUE(dropped.empty());
    std::vector<double> norms;  // by position
    for (int64_t tile = 0; tile < 20; ++tile) {
      double largest = 0;
      for (int64_t i = 0; i < 128; ++i) {
        norms.push_back(tile == 2 && i == 7 ? 30 : 3 + std::abs(normal(1, Stream::kTest, 1, norms.size())));
        largest = std::max(largest, norms.back());
      }
      dropped.add(slope, largest, tile * 128 + 127, 128);
    }
    for (const double u : {0.0, 0.01, 0.0625, 0.3, 1.0, 2.7, 9.0, 255.0, 256.0, 1000.0}) {
      for (const int64_t position : {2560, 2600, 9000}) {
        double largest = -HUGE_VAL, sum = 0;
        const auto score = [&](size_t j) {
          return u * norms[j] - slope * static_cast<double>(position - static_cast<int64_t>(j));
        };
        for (size_t j = 0; j < norms.size(); ++j) largest = std::max(largest, score(j));
        for (size_t j = 0; j < norms.size(); ++j) sum += std::exp(score(j) - largest);
        const double exact = largest + std::log(sum), bound = dropped.log_left_out(slope, u, position);
        EXPECT_GE(bound, exact - 1e-9) << slope << " " << u << " " << position;
        if (u <= 1) {  // norms are 3 to 7, taken as the tile's largest
          EXPECT_LE(bound, exact + 6 * u + 1) << slope << " " << u << " " << position;
        }
      }
    }
  }
}

// Queries, keys and values of one stream, and a cache that forgets beside all keys.
struct TestStream {
  TestStream(int64_t tokens, int64_t heads, int64_t key_heads, float size)
      : T(tokens),
        H(heads),
        G(key_heads),
        q(random_floats(T * H * D, 1, size)),
        k(random_floats(T * G * D, 2, size)),
        v(random_floats(T * G * D, 3)) {
    for (int64_t h = 0; h < H; ++h) slopes.push_back(std::exp2(-1.0f - static_cast<float>(h)));
  }
  AttentionShape shape(int64_t queries) const {
    return {.sequences = 1, .queries = queries, .heads = H, .head_dim = D, .key_heads = G};
  }
  float* query(int64_t t, int64_t h) { return q.data() + (t * H + h) * D; }
  float* key(int64_t t, int64_t g) { return k.data() + (t * G + g) * D; }

  // The probability query (i, h) gives to keys before `held`, in double.
  double true_mass(int64_t i, int64_t h, int64_t held) {
    std::vector<double> s;
    double largest = -HUGE_VAL, all = 0, lost = 0;
    for (int64_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < D; ++c) dot += double{query(i, h)[c]} * key(j, h / (H / G))[c];
      s.push_back(dot / std::sqrt(static_cast<double>(D)) -
                  slopes[static_cast<size_t>(h)] * static_cast<double>(i - j));
      largest = std::max(largest, s.back());
    }
    for (int64_t j = 0; j <= i; ++j) {
      const double p = std::exp(s[static_cast<size_t>(j)] - largest);
      all += p;
      if (j < held) lost += p;
    }
    return lost / all;
  }

  struct Outcome {
    double said = 0, lost = 0;  // of any query, at most
    ForgettingSummary summary;
    std::vector<float> out;  // [T, H, D]
  };
  // In pieces, of one size where it is given; every `every`-th query is checked by the plain loop.
  Outcome run(std::vector<NormBounds> bounds = {}, int64_t every = 5, int64_t piece = 0) {
    Context context(1);
    constexpr int64_t kMost = 100;
    KeyStore store;
    const Workspace memory([&](Layout& at) { store.layout(at, {1, G, D, 0}); });
    Forgetting forgetting({.shape = shape(kMost), .slopes = slopes, .epsilon = kEpsilon, .bounds = std::move(bounds)},
                          store);
    AttentionOptions options;
    options.bias = {.kind = DistanceBias::Kind::kLinear, .slopes = slopes};
    Outcome outcome;
    outcome.out.resize(q.size());
    const int64_t pieces[] = {1, 100, 17, 64, 3};
    int64_t n = 0;
    for (int64_t past = 0; past < T; ++n) {
      const int64_t count = std::min(piece > 0 ? piece : pieces[n % 5], T - past);
      const std::vector<int64_t> position{past}, counts{count};
      std::vector<float> lse(static_cast<size_t>(count * H)), norms(lse.size());
      std::vector<VisitedTiles> visited(static_cast<size_t>(H * shape(count).query_tiles()));
      forgetting.make_room(store, position, count);
      append_keys(context, {{key(past, 0), 0, G * D, D}, {v.data() + past * G * D, 0, G * D, D}, count, position}, {},
                  store);
      const Heads out{outcome.out.data() + past * H * D, 0, H * D, D};
      attention_forward(context, shape(count), options,
                        {{query(past, 0), 0, H * D, D}, position, out, lse, visited, norms}, store);
      forgetting.certify({norms, lse, count, position, counts});
      for (int64_t t = past; t < past + count; ++t) {
        for (int64_t h = 0; h < H && t % every == 0; ++h) {
          const int64_t held = store.rings[static_cast<size_t>(h / (H / G))].held.first;
          outcome.lost = std::max(outcome.lost, true_mass(t, h, held));
        }
      }
      outcome.said = forgetting.summary(store).left_out;
      EXPECT_LE(outcome.lost, outcome.said * (1 + 1e-6)) << "past " << past;
      past += count;
    }
    outcome.summary = forgetting.summary(store);
    return outcome;
  }

  std::vector<float> with_all_keys() {
    Context context(1);
    std::vector<float> out(q.size());
    Attention attention({.queries = T,
                         .keys = T,
                         .heads = H,
                         .key_heads = G,
                         .head_dim = D,
                         .bias = {.kind = DistanceBias::Kind::kLinear, .slopes = slopes}});
    attention.forward(context,
                      {packed_heads(std::as_const(q).data(), T, H, D), packed_heads(std::as_const(k).data(), T, G, D),
                       packed_heads(std::as_const(v).data(), T, G, D)},
                      packed_heads(out.data(), T, H, D));
    return out;
  }

  static constexpr int64_t D = 16;
  int64_t T, H, G;
  std::vector<float> q, k, v, slopes;
};

TEST(Forgetting, APlainStreamLeavesOutLessThanEpsilon) {
  for (const int64_t key_heads : {4, 2, 1}) {
    TestStream stream(2600, 4, key_heads, 1);
    const auto outcome = stream.run();
    EXPECT_GT(outcome.summary.dropped, 1000) << "nothing was forgotten: the test shows nothing";
    EXPECT_LE(outcome.said, kEpsilon);
    EXPECT_LE(outcome.summary.most_kept, 1408) << "what 4 heads keep, from the margins";
    if (key_heads == 4) {
      EXPECT_LT(outcome.summary.least_kept, outcome.summary.most_kept);
    }
    expect_close(outcome.out, stream.with_all_keys(), 3e-6, "out");
  }
}

// A query far larger than any before it: what it misses is said.
TEST(Forgetting, AQueryLikeNoneBeforeIsCertifiedByItsOwnNorm) {
  TestStream stream(2600, 2, 2, 1);
  const auto ordinary = stream.run();
  ASSERT_LE(ordinary.said, kEpsilon);
  for (int64_t c = 0; c < TestStream::D; ++c) {
    stream.query(2500, 0)[c] = 600 * stream.key(300, 0)[c];
    stream.query(2500, 1)[c] = 600 * stream.key(300, 1)[c];
  }
  const auto outcome = stream.run();
  EXPECT_GT(outcome.lost, 0.5) << "the query misses little: the test shows nothing";
  EXPECT_GE(outcome.said, outcome.lost);
}

// A key far larger than the others is kept for longer, and stays in the bound when it has gone.
TEST(Forgetting, ASinkIsKeptAsLongAsItMatters) {
  TestStream stream(2600, 1, 1, 1);
  const auto ordinary = stream.run();
  for (int64_t c = 0; c < TestStream::D; ++c) {
    stream.key(40, 0)[c] *= 60;
    for (int64_t t = 0; t < stream.T; t += 3) stream.query(t, 0)[c] = 0.02f * stream.key(40, 0)[c];
  }
  const auto outcome = stream.run();
  EXPECT_LE(outcome.lost, kEpsilon);
  EXPECT_LE(outcome.said, kEpsilon);
  EXPECT_GT(outcome.summary.bytes, ordinary.summary.bytes) << "the ring had to grow";
  EXPECT_GT(outcome.summary.grown, 0);
  EXPECT_GT(outcome.summary.dropped, 0);
}

// With bounds on all norms nothing is taken for granted: small queries first, then the largest there can be.
TEST(Forgetting, BoundsOnNormsHoldForEveryStream) {
  TestStream stream(2600, 2, 2, 0.5f);
  std::vector<NormBounds> bounds(2);
  for (int64_t t = 0; t < stream.T; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      const bool late = t > 2000 && t % 5 == 0;
      double q_norm = 0, k_norm = 0;
      for (int64_t c = 0; c < TestStream::D; ++c) {
        if (late) stream.query(t, h)[c] = 200 * stream.key(t - 550, h)[c];
        q_norm += double{stream.query(t, h)[c]} * stream.query(t, h)[c] / TestStream::D;
        k_norm += double{stream.key(t, h)[c]} * stream.key(t, h)[c];
      }
      bounds[static_cast<size_t>(h)].query = std::max(bounds[static_cast<size_t>(h)].query, std::sqrt(q_norm));
      bounds[static_cast<size_t>(h)].key = std::max(bounds[static_cast<size_t>(h)].key, std::sqrt(k_norm));
    }
  }
  const auto by_seen = stream.run();
  EXPECT_GT(by_seen.said, kEpsilon) << "the late queries are no surprise: the test shows nothing";
  const auto strict = stream.run(bounds);
  EXPECT_GT(strict.summary.dropped, 0);
  EXPECT_LE(strict.lost, kEpsilon);
  EXPECT_LE(strict.said, kEpsilon);
}

// All queries alike, keys along or against them: scores are +-most, as far apart as norms allow.
void align(TestStream& stream, float most, const std::function<bool(int64_t)>& along) {
  std::fill(stream.q.begin(), stream.q.end(), std::sqrt(most) / 2);
  for (int64_t t = 0; t < stream.T; ++t) {
    std::fill_n(stream.key(t, 0), TestStream::D, (along(t) ? 1.0f : -1.0f) * std::sqrt(most) / 2);
  }
}

// Some of these scores need just more than the ring has when it is full for the first time.
TEST(Forgetting, ARingGrowsBeforeItDropsWhatMayMatter) {
  bool grew = false, kept = false;
  for (int m = 60; m < 110; m += 2) {
    const auto most = static_cast<float>(m);
    TestStream stream(1100, 1, 1, 1);
    align(stream, most, [](int64_t t) { return t >= 300 && t < 500; });
    const auto outcome = stream.run({}, 1, 1);
    EXPECT_LE(outcome.lost, kEpsilon) << most;
    EXPECT_LE(outcome.said, kEpsilon) << most;
    (outcome.summary.grown > 0 ? grew : kept) = true;
  }
  EXPECT_TRUE(grew && kept) << "all alike: the test shows nothing";
}

// One query in the end, as large as the bound allows, along keys that are gone and against all that are there.
TEST(Forgetting, BoundsOnNormsAllowForTheWorstQuery) {
  for (int m = 40; m < 240; m += 10) {
    const auto most = static_cast<float>(m);
    TestStream stream(2501, 1, 1, 1);
    align(stream, most, [](int64_t t) { return t < 2000; });
    std::fill_n(stream.query(0, 0), 2500 * TestStream::D, 0.0f);
    const double q_norm = std::sqrt(most) / 2, k_norm = 2 * std::sqrt(most);
    const auto outcome = stream.run({{q_norm, k_norm}}, 50);
    EXPECT_LE(outcome.lost, kEpsilon) << most;
    EXPECT_LE(outcome.said, kEpsilon) << most;
    EXPECT_GT(outcome.summary.dropped, 0) << most;
  }
}

TEST(Forgetting, WhatHasNoTailIsRefused) {
  KeyStore store;
  const Workspace memory([&](Layout& at) { store.layout(at, {1, 2, 16, 0}); });
  const AttentionShape shape{.sequences = 1, .queries = 10, .heads = 2, .head_dim = 16};
  const auto refused = [&](float slope, float epsilon) {
    const std::vector<float> slopes{0.5f, slope};
    try {
      Forgetting({.shape = shape, .slopes = slopes, .epsilon = epsilon}, store);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(0.25f, kEpsilon), "");
  for (const float slope : {0.0f, -0.5f, 1e-8f})
    EXPECT_NE(refused(slope, kEpsilon).find("head 1 has a slope"), std::string::npos) << slope;
  EXPECT_NE(refused(0.25f, 0), "");
}

TEST(Forgetting, NumbersThatAreNoneAreTheWorst) {
  TestStream stream(1500, 1, 1, 1);
  KeyStore store;
  const Workspace memory([&](Layout& at) { store.layout(at, {1, 1, TestStream::D, 0}); });
  Forgetting forgetting({.shape = stream.shape(1500), .slopes = stream.slopes, .epsilon = kEpsilon}, store);
  const std::vector<float> lse{0, 0}, good{1, 1}, bad{NAN, 1};
  Context context(1);
  int64_t past = 0;
  while (forgetting.summary(store).dropped == 0) {
    const std::vector<int64_t> position{past}, counts{2};
    forgetting.make_room(store, position, 100);
    append_keys(context,
                {{stream.key(past % 1000, 0), 0, TestStream::D, TestStream::D},
                 {stream.v.data(), 0, TestStream::D, TestStream::D},
                 100,
                 position},
                {}, store);
    forgetting.certify({good, lse, 2, position, counts});
    past += 100;
  }
  EXPECT_LE(forgetting.summary(store).left_out, kEpsilon);
  const std::vector<int64_t> position{past}, counts{2};
  forgetting.certify({bad, lse, 2, position, counts});
  EXPECT_EQ(forgetting.summary(store).left_out, 1);
  forgetting.restart(0);
  EXPECT_EQ(forgetting.summary(store).left_out, 0);
}

}  // namespace
}  // namespace longshot
