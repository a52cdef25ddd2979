#include "kernels/gather.h"

#include <algorithm>
#include <array>

namespace longshot {
namespace {

constexpr int64_t kRowGrain = 16, kColumnGrain = 32;  // least work of a thread

void scale_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t c = 0; c < n; ++c) to[c] = scale * from[c];
}

}  // namespace

void gather(Context& context, ConstMat from, RowList rows, float scale, Mat out) {
  context.ranges(out.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      scale_row(from.row(rows[static_cast<size_t>(i)]), scale, out.cols, out.row(i));
    }
  });
}

void gather(Context& context, const Weight& from, RowList rows, float scale, Mat out) {
  if (!from.is_stored()) return gather(context, from.values, rows, scale, out);
  context.ranges(out.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) expand_row(from.stored, rows[static_cast<size_t>(i)], scale, out.row(i));
  });
}

void scatter(Context& context, ConstMat from, RowList rows, float scale, Mat to) {
  context.ranges(from.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      scale_row(from.row(i), scale, from.cols, to.row(rows[static_cast<size_t>(i)]));
    }
  });
}

void scatter_add(Context& context, const RowsFor& x, Mat to) {
  context.ranges(x.from.cols, kColumnGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < x.from.rows; ++i) {
      const float* source = x.from.row(i);
      float* target = to.row(x.rows[static_cast<size_t>(i)]);
      for (int64_t c = begin; c < end; ++c) target[c] += x.scale * source[c];
    }
  });
}

namespace {

// Some columns of the rows that go to one place, ascending, summed by groups.
class RunSum {
 public:
  RunSum(const RowsFor& x, const RowGroups& groups, Mat sums)
      : from_(x.from), scale_(x.scale), groups_(groups), sums_(sums) {}

  // x += the sum of these rows; the low halves of `run` are their numbers.
  void add(std::span<const uint64_t> run, std::span<float> x, int64_t first_column) {
    size_t next = 0;
    const auto row = [&] { return static_cast<int64_t>(run[next] & 0xffffffff); };
    const auto columns = static_cast<int64_t>(x.size());
    const auto leaf = [&](int64_t first, int64_t count, int i) {
      float* sum = sums_.row(i) + first_column;
      filled_[static_cast<size_t>(i)] = next < run.size() && row() < first + count;
      if (filled_[static_cast<size_t>(i)]) std::fill_n(sum, columns, 0.0f);
      for (; next < run.size() && row() < first + count; ++next) {
        const float* source = from_.row(row()) + first_column;
        for (int64_t c = 0; c < columns; ++c) sum[c] += scale_ * source[c];
      }
    };
    const auto merge = [&](int into, int other) {
      if (!filled_[static_cast<size_t>(other)]) return;
      float* to = sums_.row(into) + first_column;
      const float* sum = sums_.row(other) + first_column;
      if (!filled_[static_cast<size_t>(into)]) {
        std::copy_n(sum, columns, to);
      } else {
        for (int64_t c = 0; c < columns; ++c) to[c] += sum[c];
      }
      filled_[static_cast<size_t>(into)] = true;
    };
    sum_by_groups(groups_, leaf, merge);
    const float* sum = sums_.row(0) + first_column;
    for (int64_t c = 0; c < columns; ++c) x[static_cast<size_t>(c)] += sum[c];
  }

 private:
  ConstMat from_;
  float scale_;
  const RowGroups& groups_;
  Mat sums_;                               // [depth, all columns]
  std::array<bool, kMostDepth> filled_{};  // a group without such a row has no sum
};

}  // namespace

void scatter_add(Context& context, const RowsFor& x, Mat to, const RowGroups& groups, std::vector<uint64_t>& order) {
  if (groups.plain()) return scatter_add(context, x, to);
  order.resize(x.rows.size());
  for (size_t i = 0; i < x.rows.size(); ++i) order[i] = static_cast<uint64_t>(x.rows[i]) << 32 | i;
  std::ranges::sort(order);
  const Mat sums(context.scratch(groups.depth() * x.from.cols).data(), groups.depth(), x.from.cols);
  context.ranges(x.from.cols, kColumnGrain, [&](int64_t begin, int64_t end) {
    RunSum sum(x, groups, sums);
    for (auto run = order.begin(); run != order.end();) {
      const uint64_t place = *run >> 32;
      const auto last = std::find_if(run, order.end(), [&](uint64_t key) { return key >> 32 != place; });
      sum.add({run, last}, {to.row(static_cast<int64_t>(place)) + begin, static_cast<size_t>(end - begin)}, begin);
      run = last;
    }
  });
}

}  // namespace longshot
