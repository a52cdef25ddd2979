#include "kernels/bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/bf16_x86.h"
#include "kernels/few_rows.h"
#include "kernels/gemm_steps.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

void RoundImpl(const float* x, float* y, int64_t n) {
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR { hn::StoreU(round_vec(d, hn::LoadU(d, x + c)), d, y + c); });
}

void WidenImpl(const uint16_t* x, float* y, int64_t n) {
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR { hn::StoreU(load(d, x + c), d, y + c); });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {
namespace {

HWY_EXPORT(RoundImpl);
HWY_EXPORT(WidenImpl);

Bf16Path choose_path() {
  const char* asked = std::getenv("LONGSHOT_BF16");
  const std::string_view most = asked ? asked : "tiles";
  if (most == "tiles" && has_bf16_tiles()) return Bf16Path::kTiles;
  if (most != "rounded" && has_bf16_pairs()) return Bf16Path::kPairs;
  return Bf16Path::kRounded;
}

// Products of packed tiles.
struct TileKernel {
  static constexpr int64_t kHeight = 128, kDepth = 512;
  static constexpr bool kAddsLast = false;
  bool tiles;

  static int64_t steps(int64_t depth) { return (depth + kTileDepth - 1) / kTileDepth; }
  static int64_t strips(int64_t rows) { return (rows + kTileLanes - 1) / kTileLanes; }
  static int64_t panel_numbers(int64_t depth) { return steps(depth) * kTileNumbers; }

  static Shares::Most most() { return {2 * kTileLanes, kHeight}; }
  static int64_t depth(int64_t k) { return round_up(equal_steps(k, kDepth), kTileDepth); }
  static int64_t panel_floats(int64_t depth) { return panel_numbers(depth) / 2; }
  // The strips of A, and a block of C at the edges.
  static int64_t thread_floats(int64_t depth) {
    return kHeight / kTileLanes * panel_floats(depth) + 4 * kTileLanes * kTileLanes;  // BlockProducts::kEdgeFloats
  }

  static void pack(const Product& g, const Step& s, Shares::Range panels, float* packed);
  void multiply(const Product& g, const Step& s, const Block& at) const;

 private:
  static void pack_rows(const Product& g, const Step& s, const Block& at);
};

struct TileRange {
  int64_t first, last;
};

// One strip or panel: 16 lanes from `lane` on, over the step's inner dimension.
struct Strip {
  ConstNumberMat x;
  bool along;
  int64_t lane, lanes;
};
void pack_strip(const Strip& from, const Step& s, Operand operand, uint16_t* to) {
  for (int64_t k = 0; k < s.depth; k += kTileDepth, to += kTileNumbers) {
    const ConstNumbers x = from.along ? from.x.row(from.lane) + s.k + k : from.x.row(s.k + k) + from.lane;
    const TileSource tile{x, from.x.stride, from.along, from.lanes, std::min(kTileDepth, s.depth - k)};
    pack_tile_x86(tile, operand, to);
  }
}

// Tiles of a stored matrix: as they lie, where it has them.
void pack_stored(const Product& g, const Step& s, int64_t column, uint16_t* to) {
  if (g.form == Form::kNT && g.stored.type == WeightType::kBf16) {
    const std::byte* panel = g.stored.outputs(column, g.n - column).data;
    const auto skipped = static_cast<size_t>(s.k * kPanel),
               count = static_cast<size_t>(TileKernel::panel_numbers(s.depth));
    std::memcpy(to, panel + skipped * sizeof(uint16_t), count * sizeof(uint16_t));
    return;
  }
  float tile[kTileNumbers];
  for (int64_t k = 0; k < s.depth; k += kTileDepth, to += kTileNumbers) {
    const int64_t depth = std::min(kTileDepth, s.depth - k);
    expand(g, {column, s.k + k, depth}, tile);
    pack_tile_x86({tile, kPanel, false, kTileLanes, depth}, Operand::kB, to);
  }
}

void TileKernel::pack(const Product& g, const Step& s, Shares::Range panels, float* packed) {
  auto* to = reinterpret_cast<uint16_t*>(packed);
  for (int64_t p = panels.first; p < panels.last; ++p, to += panel_numbers(s.depth)) {
    const int64_t column = s.j + p * kPanel;
    if (g.stored.data) {
      pack_stored(g, s, column, to);
      continue;
    }
    pack_strip({g.b, g.form == Form::kNT, column, std::min(kPanel, g.n - column)}, s, Operand::kB, to);
  }
}

void TileKernel::pack_rows(const Product& g, const Step& s, const Block& at) {
  auto* to = reinterpret_cast<uint16_t*>(at.own);
  for (int64_t r = 0; r < at.rows; r += kTileLanes, to += panel_numbers(s.depth))
    pack_strip({g.a, g.form != Form::kTN, at.i + r, std::min(kTileLanes, at.rows - r)}, s, Operand::kA, to);
}

// Tiles of C that are not whole go through `edge`.
template <class F>
void with_whole_tiles(TileBlock p, int64_t rows, int64_t columns, float* edge, F&& block) {
  const int64_t strips = (rows + kTileLanes - 1) / kTileLanes, panels = (columns + kTileLanes - 1) / kTileLanes;
  if (rows == strips * kTileLanes && columns == panels * kTileLanes) return block(p, strips, panels);
  const Mat c(p.c, rows, columns, p.c_stride);
  const int64_t width = panels * kTileLanes;
  std::fill_n(edge, strips * kTileLanes * width, 0.0f);
  if (p.accumulate) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(c.row(r), columns, edge + r * width);
  }
  p.c = edge, p.c_stride = width;
  block(p, strips, panels);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * width, columns, c.row(r));
}

// One block of C, whole or not.
class BlockProducts {
 public:
  BlockProducts(bool tiles, float* edge) : edge_(edge) {
    if (tiles) session_.emplace();
  }
  int64_t size() const { return session_ ? 2 * kTileLanes : kTileLanes; }  // of a block's sides, at most
  void block(const TileBlock& p, int64_t rows, int64_t columns) {
    with_whole_tiles(p, rows, columns, edge_, [&](TileBlock whole, int64_t strips, int64_t panels) {
      whole.rows = std::min(kTileLanes, rows);
      session_ ? session_->block(whole, strips, panels) : pairs_block(whole);
    });
  }
  static constexpr int64_t kEdgeFloats = 4 * kTileLanes * kTileLanes;

 private:
  std::optional<AmxSession> session_;
  float* edge_;
};

void TileKernel::multiply(const Product& g, const Step& s, const Block& at) const {
  pack_rows(g, s, at);
  const int64_t apart = panel_numbers(s.depth);
  BlockProducts products(tiles, at.own + kHeight / kTileLanes * panel_floats(s.depth));
  const int64_t size = products.size();
  const auto* a = reinterpret_cast<const uint16_t*>(at.own);
  const auto* b = reinterpret_cast<const uint16_t*>(at.b);
  for (int64_t j = 0; j < s.columns; j += size) {
    for (int64_t i = 0; i < at.rows; i += size) {
      const TileBlock p{.a = a + i / kTileLanes * apart,
                        .a_strip = apart,
                        .b = b + j / kTileLanes * apart,
                        .b_panel = apart,
                        .steps = steps(s.depth),
                        .c = g.c.row(at.i + i) + s.j + j,
                        .c_stride = g.c.stride,
                        .accumulate = g.accumulate || s.k > 0};
      products.block(p, std::min(size, at.rows - i), std::min(size, s.columns - j));
    }
  }
}

// Rounded floats for few_rows_product().
void few_rounded_rows(Context& context, ConstMat x, const Panels& w, Mat y) {
  std::vector<float> memory(static_cast<size_t>(x.rows * x.cols));
  const Mat rounded(memory.data(), x.rows, x.cols);
  for (int64_t r = 0; r < x.rows; ++r) round_to_bf16(x.row(r), rounded.row(r), x.cols);
  few_rows_product(context, rounded, w, y);
}

// A and B rounded into scratch memory, A as it lies, panels of B one after the other.
void rounded_tile_product(TileProduct p, float* scratch) {
  const int64_t rows = p.a_transposed ? p.k : p.m, columns = p.a_transposed ? p.m : p.k;
  for (int64_t r = 0; r < rows; ++r) round_to_bf16(p.a + r * p.a_stride, scratch + r * columns, columns);
  float* panels = scratch + rows * columns;
  for (int64_t j = 0; j < p.n / kPanel; ++j) {
    for (int64_t k = 0; k < p.k; ++k)
      round_to_bf16(p.b + j * p.b_panel + k * p.b_stride, panels + (j * p.k + k) * kPanel, kPanel);
  }
  p.a = scratch, p.a_stride = columns, p.b = panels, p.b_stride = kPanel, p.b_panel = p.k * kPanel;
  tile_product(p);
}

// Of the inner dimension, what a block of C with rows from i on needs.
TileRange needed_steps(const TileProduct& p, int64_t i, int64_t rows) {
  int64_t first = 0, last = p.k;
  if (p.causal == Causal::kRows) last = std::clamp<int64_t>(i + rows + p.diagonal, 0, p.k);
  if (p.causal == Causal::kColumns) first = std::clamp<int64_t>(i - p.diagonal, 0, p.k);
  return {first / kTileDepth, std::max(TileKernel::steps(last), first / kTileDepth)};
}

}  // namespace

Bf16Path bf16_path() {
  static const Bf16Path path = choose_path();
  return path;
}

bool has_bf16_path(Bf16Path path) {
  return path == Bf16Path::kRounded || (path == Bf16Path::kTiles ? has_bf16_tiles() : has_bf16_pairs());
}

const char* name_of(Bf16Path path) {
  constexpr const char* kNames[] = {"AMX tiles", "AVX512_BF16 pairs", "rounded floats"};
  return kNames[static_cast<size_t>(path)];
}

void round_to_bf16(const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(RoundImpl)(x, y, n); }

void rounded_floats(ConstNumbers x, float* y, int64_t n) {
  x.halves ? HWY_DYNAMIC_DISPATCH(WidenImpl)(x.halves, y, n) : round_to_bf16(x.floats, y, n);
}

void pack_tile(const TileSource& from, Operand operand, uint16_t* tile) {
  for (int64_t lane = 0; lane < kTileLanes; ++lane) {
    for (int64_t k = 0; k < kTileDepth; ++k) {
      float x = 0;
      if (lane < from.lanes && k < from.depth) {
        rounded_floats(from.x + (from.along ? lane * from.stride + k : k * from.stride + lane), &x, 1);
      }
      const int64_t at = operand == Operand::kA ? lane * kTileDepth + k : k / 2 * 2 * kTileLanes + 2 * lane + k % 2;
      tile[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    }
  }
}

// A in strips for all threads; panels of B are tiles already, and sums go over the whole inner dimension.
void few_rows_bf16(Context& context, ConstMat x, const Panels& w, Mat y, Bf16Path path) {
  if (x.rows == 0) return;
  if (path == Bf16Path::kRounded) return few_rounded_rows(context, x, w, y);
  const ZoneTimer timer(context, Zone::kGemm);
  const int64_t steps = TileKernel::steps(w.in), apart = TileKernel::panel_numbers(w.in);
  const int64_t strips = TileKernel::strips(x.rows), packed = strips * TileKernel::panel_floats(w.in);
  float* scratch = context.scratch(packed + context.threads() * BlockProducts::kEdgeFloats).data();
  auto* a = reinterpret_cast<uint16_t*>(scratch);
  for (int64_t i = 0; i < strips; ++i) {
    const int64_t row = i * kTileLanes;
    pack_strip({x, true, row, std::min(kTileLanes, x.rows - row)}, {0, 0, 0, w.in}, Operand::kA, a + i * apart);
  }
  const PanelPieces pieces(w, x.rows, context.active());
  context.tasks(pieces.count, [&](int64_t piece, int thread) {
    BlockProducts products(path == Bf16Path::kTiles, scratch + packed + thread * BlockProducts::kEdgeFloats);
    const int64_t size = products.size(), end = std::min(pieces.first(piece + 1) * kPanel, w.out);
    for (int64_t j = pieces.first(piece) * kPanel; j < end; j += size) {
      const auto* b = reinterpret_cast<const uint16_t*>(w.data) + j / kPanel * apart;
      for (int64_t i = 0; i < x.rows; i += size) {
        products.block({a + i / kTileLanes * apart, apart, b, apart, steps, y.row(i) + j, y.stride, false},
                       std::min(size, x.rows - i), std::min(size, end - j));
      }
    }
  });
}

void tile_product_bf16(const TileProduct& p, Bf16Path path, float* scratch) {
  if (path == Bf16Path::kRounded) return rounded_tile_product(p, scratch);
  const int64_t steps = TileKernel::steps(p.k), apart = steps * kTileNumbers, strips = TileKernel::strips(p.m);
  auto* a = reinterpret_cast<uint16_t*>(scratch);
  uint16_t* b = a + strips * apart;
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t k = s * kTileDepth, depth = std::min(kTileDepth, p.k - k);
    for (int64_t i = 0; i < p.m; i += kTileLanes) {
      const float* x = p.a_transposed ? p.a + k * p.a_stride + i : p.a + i * p.a_stride + k;
      pack_tile_x86({x, p.a_stride, !p.a_transposed, std::min(kTileLanes, p.m - i), depth}, Operand::kA,
                    a + i / kTileLanes * apart + s * kTileNumbers);
    }
    for (int64_t j = 0; j < p.n / kPanel; ++j) {
      pack_tile_x86({p.b + j * p.b_panel + k * p.b_stride, p.b_stride, false, kTileLanes, depth}, Operand::kB,
                    b + j * apart + s * kTileNumbers);
    }
  }
  BlockProducts products(path == Bf16Path::kTiles, reinterpret_cast<float*>(b + p.n / kPanel * apart));
  const int64_t size = products.size();
  for (int64_t j = 0; j < p.n; j += size) {
    for (int64_t i = 0; i < p.m; i += size) {
      const int64_t rows = std::min(size, p.m - i);
      if (p.causal == Causal::kScores && j > i + rows - 1 + p.diagonal) continue;
      const TileRange needed = needed_steps(p, i, rows);
      products.block({.a = a + i / kTileLanes * apart + needed.first * kTileNumbers,
                      .a_strip = apart,
                      .b = b + j / kTileLanes * apart + needed.first * kTileNumbers,
                      .b_panel = apart,
                      .steps = needed.last - needed.first,
                      .c = p.c + i * p.c_stride + j,
                      .c_stride = p.c_stride,
                      .accumulate = p.accumulate},
                     rows, std::min(size, p.n - j));
    }
  }
}

int64_t tile_product_floats(int64_t m, int64_t n, int64_t k) {
  const int64_t packed =
      (TileKernel::strips(m) + n / kPanel) * TileKernel::panel_floats(k) + BlockProducts::kEdgeFloats;
  return std::max(packed, m * k + n * k);  // of tiles, or of rounded floats
}

void multiply_packed_tiles(Context& context, const Product& g, bool tiles) {
  multiply(context, g, TileKernel{.tiles = tiles});
}

void multiply_packed_tiles_by_groups(Context& context, const Product& g, const RowGroups& groups, bool tiles) {
  multiply_by_groups(context, g, groups, TileKernel{.tiles = tiles});
}

}  // namespace longshot
#endif  // HWY_ONCE
