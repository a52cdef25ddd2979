#include "kernels/few_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/few_rows.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/panels-inl.h"
// clang-format on

#include <bit>
#include <cassert>

#include "kernels/gemm_steps.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

int64_t RowHeightImpl() { return kRowHeight; }

// sum[r, lane] += x[r, k] w[lane, k], k after k
template <int R, int V>
struct Sums {
  const float* turned;  // [k, R]
  VPanel sum[R][V];

  HWY_INLINE explicit Sums(const float* turned_) : turned(turned_) {
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(DPanel());
    }
  }
  HWY_INLINE void operator()(int64_t k, const VPanel (&w)[V]) {
    for (int r = 0; r < R; ++r) {
      const auto x = hn::Set(DPanel(), turned[k * R + r]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, w[v], sum[r][v]);
    }
  }
};

// y[R, P panels] of the rows from `row` on. Sums as tile_product and its caller have them: of a step, from 0; then step
// after step.
template <int R, int P, class Reader>
HWY_NOINLINE void product_block(const FewRowsCall& call, int64_t row, int64_t panel) {
  constexpr int V = P * kVectors;
  const DPanel d;
  const Panels& w = call.w;
  HWY_ALIGN float out[R * P * kPanel] = {};
  for (int64_t k = 0; k < w.in; k += call.depth) {
    Sums<R, V> sums(call.turned + row * w.in);
    Reader::template read<P>({w, panel, k, std::min(k + call.depth, w.in)}, sums);
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < V; ++v) {
        float* at = out + (r * V + v) * kLanes;
        hn::Store(hn::Add(hn::Load(d, at), sums.sum[r][v]), d, at);
      }
    }
  }
  const int64_t column = panel * kPanel, columns = std::min(P * kPanel, w.out - column);
  const int64_t rows = std::min<int64_t>(R, call.y.rows - row);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(out + r * P * kPanel, columns, call.y.row(row + r) + column);
}

template <int R, class Reader>
void product_panels(const FewRowsCall& call, int64_t first, int64_t last) {
  constexpr int P = panels_beside(R);
  int64_t panel = first;
  for (; panel + P <= last; panel += P) {
    for (int64_t row = 0; row < call.y.rows; row += R) product_block<R, P, Reader>(call, row, panel);
  }
  for (; panel < last; ++panel) {
    for (int64_t row = 0; row < call.y.rows; row += R) product_block<R, 1, Reader>(call, row, panel);
  }
}

void FewRowsImpl(const FewRowsCall& call, int64_t first, int64_t last) {
  with_height<kRowHeight>(call.height, [&](auto height) HWY_ATTR {
    constexpr int kHeight = decltype(height)::value;
    if (call.w.type == WeightType::kF32) {
      product_panels<kHeight, FloatReader>(call, first, last);
    } else if (call.w.type == WeightType::kBf16) {
      product_panels<kHeight, Bf16Reader>(call, first, last);
    } else {
      product_panels<kHeight, MappedReader>(call, first, last);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {
namespace {

HWY_EXPORT(FewRowsImpl);
HWY_EXPORT(RowHeightImpl);

constexpr int64_t kMostBlocks = 2;  // of rows; with more, numbers are better expanded once for all

// turned[block][k, r] = x[block height + r, k]
void turn_rows(ConstMat x, int64_t height, float* turned) {
  for (int64_t row = 0; row < round_up(x.rows, height); ++row) {
    float* to = turned + row / height * height * x.cols + row % height;
    for (int64_t k = 0; k < x.cols; ++k) to[k * height] = row < x.rows ? x(row, k) : 0.0f;
  }
}

}  // namespace

int64_t few_rows() { return kMostBlocks * HWY_DYNAMIC_DISPATCH(RowHeightImpl)(); }

int64_t row_height(int64_t rows) {
  const int64_t most = HWY_DYNAMIC_DISPATCH(RowHeightImpl)(), blocks = (rows + most - 1) / most;
  const auto each = static_cast<uint64_t>((rows + blocks - 1) / blocks);
  return std::min(static_cast<int64_t>(std::bit_ceil(each)), most);
}

PanelPieces::PanelPieces(const Panels& w, int64_t rows, int threads) : panels((w.out + kPanel - 1) / kPanel) {
  constexpr int64_t kWorthThreads = 1 << 16;                // multiplications
  constexpr int64_t kPieceBytes = 1 << 17, kMostEach = 64;  // pieces of a thread
  groups = (panels + kTogether - 1) / kTogether;
  const auto bytes = static_cast<int64_t>(stored_bytes(w.type, w.out, w.in));
  const int64_t wanted = std::clamp<int64_t>(bytes / kPieceBytes, threads, kMostEach * threads);
  count = rows * w.out * w.in <= kWorthThreads ? 1 : std::min(groups, wanted);
}

void few_rows_product(Context& context, ConstMat x, const Panels& w, Mat y) {
  assert(w.type != WeightType::kInt8 && x.rows <= few_rows() && x.cols == w.in && y.rows == x.rows && y.cols == w.out);
  if (x.rows == 0) return;
  const ZoneTimer timer(context, Zone::kGemm);
  const int64_t height = row_height(x.rows);
  const float* turned = x.data;
  if (height > 1) {
    float* memory = context.scratch(round_up(x.rows, height) * x.cols).data();
    turn_rows(x, height, memory);
    turned = memory;
  }
  const FewRowsCall call{turned, height, equal_steps(w.in, product_blocking().depth), w, y};
  const PanelPieces pieces(w, x.rows, context.active());
  context.tasks(pieces.count, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(FewRowsImpl)(call, pieces.first(i), pieces.first(i + 1));
  });
}

}  // namespace longshot
#endif  // HWY_ONCE
