// How a matrix product is cut into pieces, whatever its kernel: B is packed piece by piece for all threads, then threads
// take blocks of rows of A and C.
#pragma once
#include <algorithm>

#include "base/context.h"
#include "base/view.h"
#include "kernels/panels.h"
#include "kernels/tile_product.h"

namespace longshot {

enum class Form { kNT, kNN, kTN };

// c = a b, or += when `accumulate`, with a or b transposed as the form says.
struct Product {
  Form form;
  ConstMat a, b;
  Mat c;
  int64_t m, n, k;
  bool accumulate;
  Panels stored = {};  // B, where it has data
};

// to[i, lane] = B[k + i, j + lane] of a stored B, for i < depth; j is a multiple of kPanel.
struct StoredPart {
  int64_t j, k, depth;
};
void expand(const Product& g, const StoredPart& part, float* to);

// A part of the product: columns [j, j + columns) of C, inner dimension [k, k + depth).
struct Step {
  int64_t j, columns, k, depth;
  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
};

// Rows [i, i + rows) of a step.
struct Block {
  int64_t i, rows;
  const float* b;  // packed
  float* own;      // the thread's memory
};

// How the threads share a step: equal runs of register blocks, at most `height` rows each, over all columns, or over some
// of them where rows are few.
struct Shares {
  static constexpr int64_t kTogether = 4;  // panels that stay together: register blocks do not straddle
  int64_t rows, unit, units, blocks;       // unit: rows of a register block
  int64_t panels, groups;

  struct Most {
    int64_t unit, height;
  };
  Shares(int64_t rows_, int64_t panels_, Most most, int threads) : rows(rows_), unit(most.unit), panels(panels_) {
    constexpr int64_t kEach = 4;  // of a thread: so many that an uneven rest does not matter
    units = (rows + unit - 1) / unit;
    blocks = std::min(round_up((units * unit + most.height - 1) / most.height, threads), units);
    groups = std::clamp<int64_t>(kEach * threads / blocks, 1, std::max<int64_t>(panels / kTogether, 1));
  }
  int64_t count() const { return blocks * groups; }
  struct Range {
    int64_t first, last;
  };
  Range rows_of(int64_t i) const {
    const int64_t block = i / groups;
    return {units * block / blocks * unit, std::min(units * (block + 1) / blocks * unit, rows)};
  }
  Range panels_of(int64_t i) const {
    const int64_t all = (panels + kTogether - 1) / kTogether, group = i % groups;
    return {all * group / groups * kTogether, std::min(all * (group + 1) / groups * kTogether, panels)};
  }
};

// Products of packed tiles of bf16, by AMX or by pairs. REQUIRES: the CPU has it.
void multiply_packed_tiles(Context& context, const Product& g, bool tiles);

// A kernel has
//   Shares::Most most()                   rows of its register block and of the blocks threads take
//   int64_t depth(k)                      of the steps of an inner dimension of k; of nothing else, so that a row has
//                                         the same bits whatever rows stand beside it
//   int64_t panel_floats(depth)           of a packed panel of B
//   int64_t thread_floats(depth)          of a thread's own memory
//   void pack(g, step, range, packed)     packs these panels of the step
//   void multiply(g, step, block)         the block's share of C
template <class Kernel>
void multiply(Context& context, const Product& g, const Kernel& kernel) {
  constexpr int64_t kPackedFloats = 1 << 18;  // of B: they stay in the second cache
  constexpr int64_t kWorthThreads = 1 << 16;  // multiplications
  const int64_t depth = kernel.depth(g.k), panel_floats = kernel.panel_floats(depth);
  const int64_t width = std::min(std::max<int64_t>(kPackedFloats / panel_floats, 1) * kPanel, round_up(g.n, kPanel));
  const int threads = g.m * g.n * g.k <= kWorthThreads ? 1 : context.active();
  const int64_t thread_floats = round_up(kernel.thread_floats(depth), kPanel);
  const int64_t packed_floats = width / kPanel * panel_floats;
  float* packed = context.scratch(packed_floats + context.threads() * thread_floats).data();
  float* owned = packed + packed_floats;
  for (int64_t j = 0; j < g.n; j += width) {
    for (int64_t k = 0; k < g.k; k += depth) {
      const Step s{j, std::min(width, g.n - j), k, std::min(depth, g.k - k)};
      const int64_t together = threads == 1 ? s.panels() : Shares::kTogether;
      context.tasks((s.panels() + together - 1) / together, [&](int64_t i) {
        const int64_t first = i * together, last = std::min(first + together, s.panels());
        kernel.pack(g, s, {first, last}, packed + first * kernel.panel_floats(s.depth));
      });
      const Shares shares(g.m, s.panels(), kernel.most(), threads);
      context.tasks(shares.count(), [&](int64_t i, int thread) {
        const auto [first, last] = shares.rows_of(i);
        const auto [panel, end] = shares.panels_of(i);
        const Step part{j + panel * kPanel, std::min(end * kPanel, s.columns) - panel * kPanel, k, s.depth};
        kernel.multiply(
            g, part,
            {first, last - first, packed + panel * kernel.panel_floats(s.depth), owned + thread * thread_floats});
      });
    }
  }
}

// Equal steps, none longer than `most`.
inline int64_t equal_steps(int64_t k, int64_t most) {
  const int64_t steps = std::max<int64_t>((k + most - 1) / most, 1);
  return std::max<int64_t>((k + steps - 1) / steps, 1);
}

}  // namespace longshot
