// Keys that another ring holds: attention over a ring and its halo has the bits of attention over one ring.
#include "kernels/key_halo.h"

#include <gtest/gtest.h>

#include "kernels/attention_fixture.h"

namespace longshot {
namespace {

constexpr int64_t kFirst = 6 * kKeyTile, kLength = kFirst + 300;  // where the ring under test begins, where it ends

struct Seen {
  std::vector<float> out, lse;
  std::vector<VisitedTiles> visited;
};

// The tokens from kFirst on look at what a store holds.
Seen look(Context& context, const Fixture& f, const KeyStore& store) {
  AttentionShape shape = f.c.shape;
  shape.queries = kLength - kFirst;
  Seen seen;
  seen.out.resize(static_cast<size_t>(shape.queries * f.width));
  seen.lse.resize(static_cast<size_t>(shape.queries * shape.heads));
  seen.visited.resize(static_cast<size_t>(shape.heads * shape.query_tiles()));
  const ConstMat q(f.qkv.data() + kFirst * 3 * f.width, shape.queries, f.width, 3 * f.width);
  const std::vector<int64_t> position = {kFirst};
  AttentionOptions options = f.options;
  if (options.visible.first) options.visible.first += kFirst;
  attention_forward(
      context, shape, options,
      {heads_of(q, shape.queries, shape.head_dim), position,
       heads_of(Mat(seen.out.data(), shape.queries, f.width), shape.queries, shape.head_dim), seen.lse, seen.visited},
      store);
  return seen;
}

// A ring of the tokens from kFirst on, and a halo for each head.
struct Stretch {
  explicit Stretch(Context& context, Fixture& f) : whole(f.store) {
    memory = Workspace([&](Layout& at) { f.store = whole, f.lay_out(at, kLength - kFirst); });
    store = std::exchange(f.store, whole);
    const std::vector<int64_t> position = {kFirst};
    const auto from = [&](int64_t i) {
      ConstHeads part = f.part(i);
      part.data += kFirst * part.token;
      return part;
    };
    append_keys(context, {from(1), from(2), kLength - kFirst, position}, f.options.rotation, store);
    halos.resize(store.rings.size());
    for (size_t h = 0; h < halos.size(); ++h) {
      KeyHalo& halo = halos[h];
      halo = {.end = kFirst / kKeyTile, .from = kFirst / kKeyTile};
      halo.key_floats = key_floats_of_tile(store.head_dim), halo.tile_floats = floats_of_tile(store.head_dim);
      for (int64_t t = 0; t < halo.end; ++t) halo.norms.push_back(whole.rings[h].norm_of(t));
      halo.first = tile(h, 0);
      store.rings[h].halo = &halo;
    }
  }
  std::vector<float> tile(size_t head, int64_t t) const {
    std::vector<float> floats(static_cast<size_t>(floats_of_tile(store.head_dim)));
    copy_tile(whole.rings[head], store.head_dim, t, floats.data());
    return floats;
  }
  void bring(size_t head) {
    KeyHalo& halo = halos[head];
    const auto next = tile(head, --halo.from);
    halo.near.insert(halo.near.end(), next.begin(), next.end());
  }

  KeyStore whole, store;
  Workspace memory;
  std::vector<KeyHalo> halos;
};

// Brings what is missing until nothing is. Returns the tiles that were brought.
int64_t complete(Context& context, Fixture& f, Stretch& stretch, Seen& seen) {
  int64_t brought = 0;
  for (seen = look(context, f, stretch.store); lacks_keys(seen.visited); seen = look(context, f, stretch.store)) {
    const size_t tiles = seen.visited.size() / stretch.halos.size();
    for (size_t i = 0; i < seen.visited.size(); ++i) {
      const VisitedTiles& v = seen.visited[i];
      if (!v.missing) continue;
      EXPECT_LT(v.begin, stretch.halos[i / tiles].end);
      for (; stretch.halos[i / tiles].from > v.begin; ++brought) stretch.bring(i / tiles);
    }
  }
  return brought;
}

class Halo : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Halo, testing::Values(Precision::kF32, Precision::kBf16));

TEST_P(Halo, HasTheBitsOfOneRing) {
  Context context(2);
  context.set_precision(GetParam());
  for (const bool documents : {false, true}) {
    for (const float epsilon : {0.0f, 0x1p-24f}) {
      SCOPED_TRACE(testing::Message() << "documents " << documents << " epsilon " << epsilon);
      Fixture f({.shape = {.sequences = 1, .queries = kLength, .heads = 3, .head_dim = 24},
                 .bias = Kind::kLinear,
                 .rotary_pairs = 4,
                 .documents = documents,
                 .epsilon = epsilon});
      f.forward(context);
      Stretch stretch(context, f);
      const Seen want = look(context, f, f.store);
      Seen seen;
      const int64_t brought = complete(context, f, stretch, seen);
      EXPECT_EQ(seen.out, want.out);
      EXPECT_EQ(seen.lse, want.lse);
      for (size_t i = 0; i < want.visited.size(); ++i) {
        EXPECT_EQ(seen.visited[i].begin, want.visited[i].begin);
        EXPECT_EQ(seen.visited[i].first, want.visited[i].first);
        EXPECT_EQ(seen.visited[i].sink, want.visited[i].sink);
      }
      const auto all = static_cast<int64_t>(3 * (kFirst / kKeyTile - 1));  // the first tile is at hand
      if (epsilon == 0 && !documents) EXPECT_EQ(brought, all);
      if (epsilon > 0) EXPECT_LT(brought, all);
      EXPECT_GT(brought, 0);
    }
  }
}

// The first tile counts where its key is huge, however far it is, and nothing between is brought for it.
TEST_P(Halo, AFarSinkIsSeen) {
  Context context(2);
  context.set_precision(GetParam());
  Fixture f({.shape = {.sequences = 1, .queries = kLength, .heads = 1, .head_dim = 16},
             .bias = Kind::kLinear,
             .epsilon = 0x1p-24f});
  for (int64_t d = 0; d < 16; ++d) {
    f.qkv[static_cast<size_t>(f.width + d)] = 100;
    for (int64_t i = 0; i < kLength; ++i) f.qkv[static_cast<size_t>(i * 3 * f.width + d)] = 1;
  }
  f.forward(context);
  Stretch stretch(context, f);
  const Seen want = look(context, f, f.store);
  Seen seen;
  EXPECT_LE(complete(context, f, stretch, seen), 2);
  EXPECT_TRUE(seen.visited[0].sink);
  EXPECT_EQ(seen.out, want.out);
}

}  // namespace
}  // namespace longshot
