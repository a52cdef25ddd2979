// How a matrix product is cut into pieces, whatever its kernel: B is packed piece by piece for all threads, then threads
// take blocks of rows of A and C.
#pragma once
#include <algorithm>

#include "base/context.h"
#include "base/groups.h"
#include "base/view.h"
#include "kernels/numbers.h"
#include "kernels/panels.h"
#include "kernels/tile_product.h"
#include "kernels/update.h"

namespace longshot {

enum class Form { kNT, kNN, kTN };

// c = a b, or += when `accumulate`, with a or b transposed as the form says.
struct Product {
  Form form;
  ConstNumberMat a, b;  // b of floats unless the form is kTN
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
void multiply_packed_tiles_by_groups(Context& context, const Product& g, const RowGroups& groups, bool tiles);

// A kernel has
//   Shares::Most most()                   rows of its register block and of the blocks threads take
//   int64_t depth(k)                      of the steps of an inner dimension of k; of nothing else, so that a row has
//                                         the same bits whatever rows stand beside it
//   int64_t panel_floats(depth)           of a packed panel of B
//   int64_t thread_floats(depth)          of a thread's own memory
//   void pack(g, step, range, packed)     packs these panels of the step
//   void multiply(g, step, block)         the block's share of C
//   bool kAddsLast                        with `accumulate` a step is summed from zero and then added to C
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

// c += a^T b, with the sum over rows made by groups. All of B is packed for some columns; then a thread makes the whole
// tree for a block of C in memory of its own.
template <class Kernel>
class GroupedProduct {
 public:
  GroupedProduct(Context& context, const Product& g, const RowGroups& groups, const Kernel& kernel)
      : context_(context), g_(g), groups_(groups), kernel_(kernel), depth_(groups.depth()) {
    const int64_t panels = (g.n + kPanel - 1) / kPanel;
    panel_floats_ = all_panel_floats();
    // NOLINTNEXTLINE(*-DivideZero): a product without depth does not come here
    panels_ = std::clamp<int64_t>(kPackedFloats / panel_floats_, 1, std::min(panels, kMostPanels));
    sum_floats_ = kernel.most().height * panels_ * kPanel;
    own_floats_ = 0;
    const auto leaf = [&](int64_t, int64_t count, int) {
      own_floats_ = std::max(own_floats_, round_up(kernel.thread_floats(kernel.depth(count)), kPanel));
    };
    sum_by_groups(groups, leaf, [](int, int) {});
    thread_floats_ = own_floats_ + depth_ * sum_floats_;
    packed_ = context.scratch(panels_ * panel_floats_ + context.threads() * thread_floats_).data();
  }

  void run() {
    for (int64_t j = 0; j < g_.n; j += panels_ * kPanel) {
      const int64_t columns = std::min(panels_ * kPanel, g_.n - j);
      pack(j, columns);
      const Shares shares(g_.m, (columns + kPanel - 1) / kPanel, kernel_.most(), context_.active());
      context_.tasks(shares.count(), [&](int64_t i, int thread) {
        const auto [first, last] = shares.rows_of(i);
        const auto [panel, end] = shares.panels_of(i);
        if (first < last)
          block({first, last - first}, {panel, std::min(end * kPanel, columns) - panel * kPanel, j}, thread);
      });
    }
  }

 private:
  static constexpr int64_t kPackedFloats = 1 << 22, kMostPanels = 32;
  struct Rows {
    int64_t first, count;
  };
  struct Columns {
    int64_t panel, count, j;  // first panel of those packed, columns, the column of C where packed ones begin
  };

  // f(first row, depth) of every step of the inner dimension.
  template <class F>
  void steps_of(int64_t first, int64_t count, F&& f) const {
    const int64_t depth = kernel_.depth(count);
    for (int64_t k = 0; k < count; k += depth) f(first + k, std::min(depth, count - k));
  }
  int64_t all_panel_floats() const {
    int64_t sum = 0;
    const auto leaf = [&](int64_t first, int64_t count, int) {
      steps_of(first, count, [&](int64_t, int64_t depth) { sum += kernel_.panel_floats(depth); });
    };
    sum_by_groups(groups_, leaf, [](int, int) {});
    return sum;
  }

  // Steps one after the other, the panels of each together.
  void pack(int64_t j, int64_t columns) {
    const int64_t panels = (columns + kPanel - 1) / kPanel, together = Shares::kTogether;
    context_.tasks((panels + together - 1) / together, [&](int64_t i) {
      const int64_t first = i * together, last = std::min(first + together, panels);
      float* to = packed_;
      const auto leaf = [&](int64_t row, int64_t count, int) {
        steps_of(row, count, [&](int64_t k, int64_t depth) {
          kernel_.pack(g_, {j, columns, k, depth}, {first, last}, to + first * kernel_.panel_floats(depth));
          to += panels * kernel_.panel_floats(depth);
        });
      };
      sum_by_groups(groups_, leaf, [](int, int) {});
    });
  }

  // Rows and columns of C.
  void block(Rows rows, Columns columns, int thread) const {
    float* own = packed_ + panels_ * panel_floats_ + thread * thread_floats_;
    const int64_t width = round_up(columns.count, kPanel), all = panels_of(columns.j);
    const auto sum = [&](int i) { return Mat(own + own_floats_ + i * sum_floats_, rows.count, columns.count, width); };
    const float* b = packed_;
    int64_t first = groups_.begin;
    int top = 0;
    for (const RowGroup& group : groups_.groups) {
      const int64_t count = group.end - first;
      // What one step makes can go straight to the sum it is merged with.
      const bool direct = Kernel::kAddsLast && top > 0 && group.merges > 0 && kernel_.depth(count) >= count;
      Product part = g_;
      part.a = g_.a.rows_from(first - groups_.begin, count).cols_from(rows.first, rows.count);
      part.c = sum(direct ? top - 1 : top), part.accumulate = direct;
      part.m = rows.count, part.n = columns.count, part.k = count;
      steps_of(0, count, [&](int64_t k, int64_t depth) {
        const float* packed = b + columns.panel * kernel_.panel_floats(depth);
        kernel_.multiply(part, {0, columns.count, k, depth}, {0, rows.count, packed, own});
        b += all * kernel_.panel_floats(depth);
      });
      if (count == 0 && !direct) fill(part.c, 0.0f);
      if (!direct) ++top;
      for (int m = direct ? 1 : 0; m < group.merges && top > 1; ++m, --top) add(sum(top - 1), sum(top - 2));
      first = group.end;
    }
    add(sum(0), g_.c.rows_from(rows.first, rows.count).cols_from(columns.j + columns.panel * kPanel, columns.count));
  }
  int64_t panels_of(int64_t j) const { return (std::min(panels_ * kPanel, g_.n - j) + kPanel - 1) / kPanel; }
  static void fill(Mat x, float value) {
    for (int64_t r = 0; r < x.rows; ++r) std::fill_n(x.row(r), x.cols, value);
  }
  static void add(Mat from, Mat to) {
    for (int64_t r = 0; r < to.rows; ++r) add_floats(from.row(r), to.row(r), to.cols);
  }

  Context& context_;
  const Product& g_;
  const RowGroups& groups_;
  const Kernel& kernel_;
  int depth_;
  int64_t panels_;        // that are packed together
  int64_t panel_floats_;  // of all steps
  int64_t sum_floats_, own_floats_, thread_floats_;
  float* packed_;
};

template <class Kernel>
void multiply_by_groups(Context& context, const Product& g, const RowGroups& groups, const Kernel& kernel) {
  GroupedProduct<Kernel>(context, g, groups, kernel).run();
}

// Equal steps, none longer than `most`.
inline int64_t equal_steps(int64_t k, int64_t most) {
  const int64_t steps = std::max<int64_t>((k + most - 1) / most, 1);
  return std::max<int64_t>((k + steps - 1) / steps, 1);
}

}  // namespace longshot
