// Keys that are appended, replaced and forgotten: attention over what a store holds equals the whole pass.
#include "kernels/attention_keys.h"

#include <gtest/gtest.h>

#include "kernels/attention_fixture.h"

namespace longshot {
namespace {

// Tokens [first, first + count) of sequence b of f go through the store; returns their outputs, [count, C].
std::vector<float> feed(Context& context, Fixture& f, KeyStore& store, int64_t b, KeyRange tokens) {
  const int64_t count = tokens.last - tokens.first, w = f.width, D = f.c.shape.head_dim;
  AttentionShape shape = f.c.shape;
  shape.sequences = 1, shape.queries = count;
  const float* qkv = f.qkv.data() + (b * f.c.shape.queries + tokens.first) * 3 * w;
  const auto part = [&](int64_t i) { return heads_of(ConstMat(qkv + i * w, count, w, 3 * w), count, D); };
  std::vector<float> out(static_cast<size_t>(count * w)), lse(static_cast<size_t>(count * shape.heads));
  std::vector<VisitedTiles> visited(static_cast<size_t>(shape.heads * shape.query_tiles()));
  const std::vector<int64_t> position = {tokens.first};
  append_keys(context, {part(1), part(2), count, position}, f.options.rotation, store);
  attention_forward(context, shape, f.options,
                    {part(0), position, heads_of(Mat(out.data(), count, w), count, D), lse, visited}, store);
  return out;
}

TEST(KeyStore, AppendingEqualsTheWholePass) {
  Context context(2);
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    const Case c{
        .shape = {.sequences = 1, .queries = 290, .heads = 2, .head_dim = 24}, .bias = kind, .rotary_pairs = 8};
    Fixture whole(c), parts(c);
    whole.forward(context);
    int64_t past = 0;
    for (const int64_t step : {1, 1, 100, 15, 17, 1, 130, 25}) {
      const auto out = feed(context, parts, parts.store, 0, {past, past + step});
      const auto want = whole.out.begin() + past * whole.width;
      expect_close(out, std::vector<float>(want, want + step * whole.width), 3e-6, "out");
      past += step;
    }
    ASSERT_EQ(past, 290);
  }
}

TEST(KeyStore, SequencesOfUnequalLengthGoOnTogether) {
  Context context(2);
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    const Case c{
        .shape = {.sequences = 3, .queries = 300, .heads = 2, .head_dim = 16}, .bias = kind, .rotary_pairs = 8};
    Fixture whole(c), parts(c);
    whole.forward(context);
    const int64_t w = whole.width, step = 7;
    std::vector<int64_t> past = {0, 130, 293};
    for (int64_t b = 0; b < 3; ++b) {  // each alone up to its past, in the ring it has in the common store
      KeyStore alone = parts.store;
      const auto of = [&](auto span) {
        return span.subspan(static_cast<size_t>(b) * span.size() / 3, span.size() / 3);
      };
      alone.sequences = 1, alone.rings = of(alone.rings);
      const int64_t end = past[static_cast<size_t>(b)];
      if (end > 0) feed(context, parts, alone, b, {0, end});
    }
    AttentionShape shape = c.shape;
    shape.queries = step;
    std::vector<float> qkv, out(static_cast<size_t>(3 * step * w)), lse(static_cast<size_t>(3 * 2 * step)), want;
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t row = b * 300 + past[static_cast<size_t>(b)];
      qkv.insert(qkv.end(), whole.qkv.begin() + row * 3 * w, whole.qkv.begin() + (row + step) * 3 * w);
      want.insert(want.end(), whole.out.begin() + row * w, whole.out.begin() + (row + step) * w);
    }
    const auto part = [&](int64_t i) { return heads_of(ConstMat(qkv.data() + i * w, 3 * step, w, 3 * w), step, 16); };
    append_keys(context, {part(1), part(2), step, past}, parts.options.rotation, parts.store);
    attention_forward(context, shape, parts.options,
                      {part(0), past, heads_of(Mat(out.data(), 3 * step, w), step, 16), lse, parts.visited},
                      parts.store);
    expect_close(out, want, 3e-6, "out");
  }
}

TEST(KeyStore, ARingForgetsItsOldestTiles) {
  Context context(2);
  const int64_t T = 1400;
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    for (const float epsilon : {0.0f, 0x1p-24f}) {
      const Case c{.shape = {.sequences = 1, .queries = T, .heads = 2, .head_dim = 16},
                   .bias = kind,
                   .table = 60,
                   .rotary_pairs = 4,
                   .epsilon = epsilon};
      Fixture ring(c), kept(c);
      const Workspace small([&](Layout& at) { ring.lay_out(at, 400); });  // 512 tokens: four tiles
      ASSERT_EQ(ring.store.rings[0].capacity, 512);
      std::vector<int32_t> first_key(static_cast<size_t>(T));
      for (int64_t past = 0, step = 1; past < T; past += step, step = step * 2 % 113) {
        step = std::min(step, T - past);
        const auto out = feed(context, ring, ring.store, 0, {past, past + step});
        const KeyRange held = ring.store.rings[0].held;
        EXPECT_EQ(held.last, past + step);
        EXPECT_LE(held.last - held.first, 512);
        EXPECT_GE(held.last - held.first, std::min<int64_t>(past + step, 385)) << "more than a tile was dropped early";
        // What the whole pass gives over the kept range.
        kept.options.visible = {.causal = true, .first = first_key.data(), .last = nullptr, .stride = step};
        std::fill(first_key.begin(), first_key.end(), static_cast<int32_t>(held.first));
        const auto want = feed(context, kept, kept.store, 0, {past, past + step});
        expect_close(out, want, 3e-6, "out");
        if (testing::Test::HasFailure()) FAIL() << "past " << past << " step " << step;
      }
      EXPECT_GT(ring.store.rings[0].held.first, 800) << "nothing was forgotten: the test shows nothing";
    }
  }
}

TEST(KeyStore, KeysFromAPositionOnAreReplaced) {
  Context context(1);
  const Case c{.shape = {.sequences = 1, .queries = 300, .heads = 1, .head_dim = 8}, .bias = Kind::kLinear};
  Fixture f(c), other(c);
  for (float& x : other.qkv) x = -x + 0.5f;
  feed(context, f, f.store, 0, {0, 140});
  feed(context, other, f.store, 0, {140, 290});  // a branch that is given up
  const auto out = feed(context, f, f.store, 0, {140, 300});
  f.forward(context);
  expect_close(out, std::vector<float>(f.out.begin() + 140 * 8, f.out.end()), 3e-6, "out");
  feed(context, f, f.store, 0, {200, 250});
  EXPECT_EQ(f.store.rings[0].held.first, 0);
  feed(context, f, f.store, 0, {260, 270});  // 250 .. 259 are missing: nothing before can be kept
  EXPECT_EQ(f.store.rings[0].held.first, 260);
  EXPECT_EQ(f.store.rings[0].held.last, 270);
}

TEST(KeyStore, ARotationMayBeginAnywhere) {
  Context context(1);
  const Case c{.shape = {.sequences = 1, .queries = 200, .heads = 1, .head_dim = 16}, .rotary_pairs = 8};
  Fixture whole(c), parts(c);
  whole.forward(context);
  feed(context, parts, parts.store, 0, {0, 170});
  Rotation& r = parts.options.rotation;
  r = {r.cos.rows_from(170, 30), r.sin.rows_from(170, 30), r.interleaved, 170};
  const auto out = feed(context, parts, parts.store, 0, {170, 200});
  expect_close(out, std::vector<float>(whole.out.begin() + 170 * 16, whole.out.end()), 3e-6, "out");
}

}  // namespace
}  // namespace longshot
