// Sums over rows by groups: the bits of each group's sum made alone, added as the tree says.
#include <gtest/gtest.h>

#include "context.h"
#include "kernels/gather.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"
#include "kernels/support.h"

namespace longshot {
namespace {

using Floats = std::vector<float>;

Floats random(int64_t n, uint64_t seed) {
  Floats x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(static_cast<float>(normal(seed, Stream::kTest, 7, static_cast<uint64_t>(i))));
  return x;
}

// sum(first row, rows) of every group, by the tree.
template <class Sum>
Floats by_hand(const RowGroups& groups, Sum&& sum) {
  std::vector<Floats> sums(kMostDepth);
  sum_by_groups(
      groups, [&](int64_t first, int64_t count, int i) { sums[static_cast<size_t>(i)] = sum(first, count); },
      [&](int into, int from) {
        for (size_t c = 0; c < sums[0].size(); ++c)
          sums[static_cast<size_t>(into)][c] += sums[static_cast<size_t>(from)][c];
      });
  return sums[0];
}

struct Case {
  int64_t rows, m, n;
  std::vector<RowGroup> groups;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [rows, m, n] :
       {std::array<int64_t, 3>{64, 48, 32}, {37, 13, 7}, {1000, 97, 70}, {3300, 50, 33}, {9, 1, 1}, {200, 20, 1100}}) {
    for (const int levels : {1, 2, 3}) all.push_back({rows, m, n, halved(0, rows, levels)});
    all.push_back({rows, m, n, {{rows / 3, 0}, {rows / 3, 1}, {rows, 1}}});  // one of them empty
    all.push_back({rows, m, n, {{0, 0}, {rows / 2, 0}, {rows, 2}}});
  }
  return all;
}

TEST(SumsByGroups, OfProducts) {
  for (const auto& [name, precision] : kPrecisions) {
    for (const int threads : {1, 3}) {
      Context context(threads);
      context.set_precision(precision);
      for (const Case& c : cases()) {
        const Floats dy = random(c.rows * c.m, 1), x = random(c.rows * c.n, 2);
        const ConstMat a(dy.data(), c.rows, c.m), b(x.data(), c.rows, c.n);
        const Floats wanted = by_hand({c.groups}, [&](int64_t first, int64_t count) {
          Floats sum(static_cast<size_t>(c.m * c.n));
          gemm_tn(context, a.rows_from(first, count), b.rows_from(first, count), {sum.data(), c.m, c.n});
          return sum;
        });
        Floats dw(static_cast<size_t>(c.m * c.n));
        product_gradient(context, a, b, {dw.data(), c.m, c.n}, {c.groups});
        EXPECT_TRUE(dw == wanted) << name << " " << threads << " threads " << c.rows << " " << c.m << " " << c.n;
      }
    }
  }
}

TEST(SumsByGroups, OfProductsInPieces) {
  Context context(2);
  for (const Case& c : cases()) {
    const Floats dy = random(c.rows * c.m, 1), x = random(c.rows * c.n, 2);
    const ConstMat a(dy.data(), c.rows, c.m), b(x.data(), c.rows, c.n);
    Floats whole(static_cast<size_t>(c.m * c.n));
    product_gradient(context, a, b, {whole.data(), c.m, c.n}, {c.groups});
    const int64_t longest = c.rows;  // no group is cut: that would be another sum
    for (const int64_t most : {longest, c.rows / 2 + 1}) {
      bool cut = false;
      Floats dw(whole.size()), room(static_cast<size_t>(GradientPieces::room({c.groups}, most, c.m * c.n)));
      GradientPieces sums({dw.data(), c.m, c.n}, room.data());
      GroupPieces pieces({c.groups}, most);
      while (const auto p = pieces.next()) {
        cut = cut || p->goes_on;
        sums.add(context, *p, a.rows_from(p->first, p->count), b.rows_from(p->first, p->count));
      }
      EXPECT_TRUE(cut || dw == whole) << c.rows << " " << most;
    }
  }
}

TEST(SumsByGroups, OfColumnsAndNorms) {
  for (const Case& c : cases()) {
    const Floats dy = random(c.rows * c.m, 1), x = random(c.rows * c.m, 2);
    Floats mean = random(c.rows, 3), rstd = random(c.rows, 4);
    const ConstMat a(dy.data(), c.rows, c.m), b(x.data(), c.rows, c.m);
    const auto norm = [&](int64_t first, int64_t count, const RowGroups& groups) {
      Floats sums(static_cast<size_t>(2 * c.m));
      const auto at = static_cast<size_t>(first);
      const std::span<float> all(sums);
      norm_backward_weights(test_context(), a.rows_from(first, count),
                            {b.rows_from(first, count), {std::span(mean).subspan(at), std::span(rstd).subspan(at)}},
                            {all.first(static_cast<size_t>(c.m)), all.last(static_cast<size_t>(c.m))}, groups);
      return sums;
    };
    EXPECT_EQ(norm(0, c.rows, {c.groups}), by_hand({c.groups}, [&](int64_t f, int64_t n) { return norm(f, n, {}); }));
    const auto columns = [&](int64_t first, int64_t count, const RowGroups& groups) {
      Floats sums(static_cast<size_t>(c.m));
      column_sums(test_context(), a.rows_from(first, count), sums, groups);
      return sums;
    };
    EXPECT_EQ(columns(0, c.rows, {c.groups}),
              by_hand({c.groups}, [&](int64_t f, int64_t n) { return columns(f, n, {}); }));
  }
}

TEST(SumsByGroups, OfRowsThatGoToOnePlace) {
  for (const Case& c : cases()) {
    const Floats from = random(c.rows * c.m, 1);
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < c.rows; ++r)
      ids.push_back(static_cast<int32_t>(random_bits(1, Stream::kTest, 5, static_cast<uint64_t>(r)) % 11));
    const auto scattered = [&](int64_t first, int64_t count, const RowGroups& groups) {
      Floats to(static_cast<size_t>(11 * c.m));
      std::vector<uint64_t> order;
      scatter_add(test_context(), {from.data() + first * c.m, count, c.m}, part<const int32_t>(ids, first, count), 0.7f,
                  {to.data(), 11, c.m}, groups, order);
      return to;
    };
    EXPECT_EQ(scattered(0, c.rows, {c.groups}),
              by_hand({c.groups}, [&](int64_t f, int64_t n) { return scattered(f, n, {}); }));
  }
}

}  // namespace
}  // namespace longshot
