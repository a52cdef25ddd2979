// Tiled attention against the plain formula, forward and backward, at awkward sizes.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>

#include "kernels/attention_fixture.h"

namespace longshot {
namespace {

void check(const Case& c, int threads = 2) {
  Context context(threads);
  Fixture f(c);
  const auto d_out = random_floats(f.n * f.width, 5);
  f.forward(context);
  f.backward(context, d_out);
  PlainAttention plain = f.plain(d_out);
  plain.run();
  const double rounding = std::max(1.0f, c.scale * c.scale);  // errors grow with the size of the scores
  expect_close(f.out, plain.out, 2e-6 * rounding, "out");
  expect_close(f.columns(f.d_qkv, 0), plain.d_q, 1e-5 * rounding, "d_q");
  expect_close(f.columns(f.d_qkv, 1), plain.d_k, 1e-5 * rounding, "d_k");
  expect_close(f.columns(f.d_qkv, 2), plain.d_v, 1e-5 * rounding, "d_v");
  if (c.bias != Kind::kNone) expect_close(f.d_bias, plain.d_bias, 1e-5 * rounding, "d_bias");
}

TEST(Attention, EqualsThePlainFormulaAtAwkwardSizes) {
  for (const int64_t queries : {1, 2, 15, 16, 17, 95, 96, 97, 127, 128, 129, 200, 300}) {
    for (const int64_t dim : {8, 16, 20, 64}) {
      for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
        SCOPED_TRACE(testing::Message() << "T " << queries << " D " << dim << " bias " << static_cast<int>(kind));
        check({.shape = {.sequences = 2, .queries = queries, .heads = 2, .head_dim = dim}, .bias = kind});
      }
    }
  }
}

// Operands of the products are rounded: inputs, probabilities and gradients by 2^-8 of themselves.
TEST(Attention, InBf16WithinTheRoundingOfOperands) {
  Context context(2);
  context.set_precision(Precision::kBf16);
  for (const int64_t queries : {1, 17, 96, 97, 129, 300}) {
    for (const int64_t dim : {8, 20, 64, 80}) {
      for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
        SCOPED_TRACE(testing::Message() << "T " << queries << " D " << dim << " bias " << static_cast<int>(kind));
        Fixture f({.shape = {.sequences = 2, .queries = queries, .heads = 2, .head_dim = dim}, .bias = kind});
        const auto d_out = random_floats(f.n * f.width, 5);
        f.forward(context);
        f.backward(context, d_out);
        PlainAttention plain = f.plain(d_out);
        plain.run();
        expect_close(f.out, plain.out, 2e-2, "out");
        expect_close(f.columns(f.d_qkv, 0), plain.d_q, 4e-2, "d_q");
        expect_close(f.columns(f.d_qkv, 1), plain.d_k, 4e-2, "d_k");
        expect_close(f.columns(f.d_qkv, 2), plain.d_v, 4e-2, "d_v");
      }
    }
  }
}

// With queries of 0 the scores are the bias alone: no bit of it may be lost, at any distance.
TEST(Attention, TheBiasIsNeverRounded) {
  Fixture floats(
      {.shape = {.sequences = 1, .queries = 3000, .heads = 8, .head_dim = 16}, .bias = Kind::kLinear, .scale = 0});
  Fixture halves(floats.c);
  for (Fixture* f : {&floats, &halves}) {
    for (size_t h = 0; h < f->slopes.size(); ++h) f->slopes[h] = 0.3f * std::exp2(-static_cast<float>(h));
  }
  Context context(2);
  floats.forward(context);
  context.set_precision(Precision::kBf16);
  halves.forward(context);
  EXPECT_EQ(halves.lse, floats.lse);
}

TEST(Attention, ATablesLastEntryHoldsBeyondIt) {
  for (const int64_t distances : {1, 5, 100, 129, 250}) {
    SCOPED_TRACE(distances);
    check({.shape = {.sequences = 1, .queries = 430, .heads = 2, .head_dim = 16},
           .bias = Kind::kTable,
           .table = distances});
  }
}

TEST(Attention, RotatesQueriesAndKeys) {
  for (const bool interleaved : {false, true}) {
    for (const int pairs : {1, 4, 8, 12}) {
      SCOPED_TRACE(testing::Message() << pairs << " pairs, interleaved " << interleaved);
      check({.shape = {.sequences = 1, .queries = 150, .heads = 2, .head_dim = 24},
             .rotary_pairs = pairs,
             .interleaved = interleaved});
    }
  }
}

TEST(Attention, DocumentsDoNotSeeEachOther) {
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    check({.shape = {.sequences = 2, .queries = 333, .heads = 1, .head_dim = 16}, .bias = kind, .documents = true});
  }
}

TEST(Attention, ExtremeScoresStayFinite) {
  check({.shape = {.sequences = 1, .queries = 260, .heads = 2, .head_dim = 16}, .bias = Kind::kLinear, .scale = 6});
}

// Runs `body` once for every instruction set this machine has.
void for_each_target(const std::function<void()>& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Attention, EveryInstructionSetAgrees) {
  for_each_target([] {
    check({.shape = {.sequences = 1, .queries = 150, .heads = 2, .head_dim = 20},
           .bias = Kind::kLinear,
           .rotary_pairs = 5});
    check({.shape = {.sequences = 1, .queries = 131, .heads = 1, .head_dim = 8},
           .bias = Kind::kTable,
           .table = 100,
           .documents = true});
  });
}

TEST(Attention, ThreadsChangeNothing) {
  const Case c{.shape = {.sequences = 2, .queries = 210, .heads = 3, .head_dim = 16}, .bias = Kind::kTable};
  const auto d_out = random_floats(2 * 210 * 48, 5);
  std::vector<std::vector<float>> results;
  for (const int count : {1, 2}) {
    Context context(count);
    Fixture f(c);
    f.forward(context);
    f.backward(context, d_out);
    results.push_back(f.out), results.push_back(f.d_qkv), results.push_back(f.d_bias);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]);
}

TEST(Attention, FewHeadsAreCutIntoPartsForManyThreads) {
  for (const Kind bias : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    check({.shape = {.sequences = 1, .queries = 700, .heads = 1, .head_dim = 16}, .bias = bias, .rotary_pairs = 4}, 5);
    check({.shape = {.sequences = 1, .queries = 290, .heads = 3, .head_dim = 24}, .bias = bias, .documents = true}, 5);
  }
}

// Scores that depend on more than distance.

// A gate per key and head: term(i, j) = -g_j, g >= 0.
class KeyGate : public ScoreTerm {
 public:
  KeyGate(const AttentionShape& shape)
      : heads_(shape.heads), keys_(shape.queries), gate(random_floats(shape.sequences * heads_ * keys_, 31)) {
    for (float& g : gate) g = -std::abs(g);
    d_gate.assign(gate.size(), 0);
  }
  size_t at(int64_t sequence, int64_t head, int64_t key) const {
    return static_cast<size_t>((sequence * heads_ + head) * keys_ + key);
  }
  void add(const Tile& t, float* s) const override {
    for (int64_t r = 0; r < t.rows; ++r) {
      for (int64_t c = 0; c < t.cols; ++c) s[r * t.stride + c] += gate[at(t.sequence, t.head, t.key + c)];
    }
  }
  void add_gradient(const Tile& t, const float* d_s) override {
    for (int64_t r = 0; r < t.rows; ++r) {
      for (int64_t c = 0; c < t.cols; ++c) d_gate[at(t.sequence, t.head, t.key + c)] += d_s[r * t.stride + c];
    }
  }
  float most() const override { return 0; }

 private:
  int64_t heads_, keys_;

 public:
  std::vector<float> gate, d_gate;
};

TEST(ScoreTerm, AGatePerKeyAndItsGradient) {
  for (const int threads : {1, 5}) {  // heads whole, heads in parts
    Context context(threads);
    Fixture f({.shape = {.sequences = 2, .queries = 300, .heads = 2, .head_dim = 16},
               .bias = Kind::kLinear,
               .documents = true});
    KeyGate gate(f.c.shape);
    f.options.term = &gate;
    const auto d_out = random_floats(f.n * f.width, 5);
    f.forward(context);
    f.backward(context, d_out);
    PlainAttention plain = f.plain(d_out);
    plain.term = [&](int64_t b, int64_t h, int64_t, int64_t j) { return gate.gate[gate.at(b, h, j)]; };
    plain.run();
    expect_close(f.out, plain.out, 2e-6, "out");
    expect_close(f.columns(f.d_qkv, 0), plain.d_q, 1e-5, "d_q");
    expect_close(f.columns(f.d_qkv, 1), plain.d_k, 1e-5, "d_k");
    expect_close(gate.d_gate, plain.d_term, 1e-5, "d_gate");
  }
}

TEST(ScoreTerm, ATermMayHideKeys) {
  class Hide : public ScoreTerm {
    void add(const Tile& t, float* s) const override {
      for (int64_t r = 0; r < t.rows; ++r) {
        for (int64_t c = 0; c < t.cols; ++c) {
          if (t.key + c < 200) s[r * t.stride + c] = -HUGE_VALF;
        }
      }
    }
    void add_gradient(const Tile&, const float*) override {}
  } hide;
  Context context(2);
  Fixture f({.shape = {.sequences = 1, .queries = 300, .heads = 1, .head_dim = 16}, .bias = Kind::kLinear});
  f.options.term = &hide;
  const auto d_out = random_floats(f.n * f.width, 5);
  f.forward(context);
  f.backward(context, d_out);
  for (size_t i = 0; i < 200 * 16; ++i) ASSERT_EQ(f.out[i], 0);  // they see nothing
  PlainAttention plain = f.plain(d_out);
  plain.first.assign(300, 200);
  plain.run();
  expect_close(f.out, plain.out, 2e-6, "out");
  expect_close(f.lse, plain.lse, 2e-6, "lse");
  expect_close(f.columns(f.d_qkv, 0), plain.d_q, 1e-5, "d_q");
  expect_close(f.columns(f.d_qkv, 1), plain.d_k, 1e-5, "d_k");
  expect_close(f.columns(f.d_qkv, 2), plain.d_v, 1e-5, "d_v");
}

}  // namespace
}  // namespace longshot
