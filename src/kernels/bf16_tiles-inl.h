// A block of C by products of tiles, over a small set of tile operations: the instructions of AMX, or a plain loop. A Tiles
// has eight tiles of 16 rows of 64 bytes:
//   zero<T>()  load<T>(from, stride)  store<T>(to, stride)     strides in bytes
//   multiply<C, A, B>()       C[16, 16] += A[16, 32] B[16, 16, 2]
#pragma once
#include <cstdint>

#include "kernels/bf16.h"

namespace longshot {

// C[16 M, 16 N].
template <int M, int N, class Tiles>
void tile_block(Tiles& t, const TileBlock& p) {
  constexpr int64_t kRow = 64;  // bytes of a packed tile's row
  const int64_t stride = p.c_stride * static_cast<int64_t>(sizeof(float));
  float* const lower = p.c + kTileLanes * p.c_stride;
  if (p.accumulate) {
    t.template load<0>(p.c, stride);
    if constexpr (N > 1) t.template load<1>(p.c + kTileLanes, stride);
    if constexpr (M > 1) t.template load<2>(lower, stride);
    if constexpr (M > 1 && N > 1) t.template load<3>(lower + kTileLanes, stride);
  } else {
    t.template zero<0>();
    if constexpr (N > 1) t.template zero<1>();
    if constexpr (M > 1) t.template zero<2>();
    if constexpr (M > 1 && N > 1) t.template zero<3>();
  }
  for (int64_t r = 0; r < M * kTileLanes; ++r) {
    for (int n = 0; n < N; ++n) __builtin_prefetch(p.c + r * p.c_stride + n * kTileLanes, 1);
  }
  const uint16_t *a = p.a, *b = p.b;
  for (int64_t step = 0; step < p.steps; ++step, a += kTileNumbers, b += kTileNumbers) {
    t.template load<6>(b, kRow);
    t.template load<4>(a, kRow);
    t.template multiply<0, 4, 6>();
    if constexpr (N > 1) {
      t.template load<7>(b + p.b_panel, kRow);
      t.template multiply<1, 4, 7>();
    }
    if constexpr (M > 1) {
      t.template load<5>(a + p.a_strip, kRow);
      t.template multiply<2, 5, 6>();
      if constexpr (N > 1) t.template multiply<3, 5, 7>();
    }
  }
  t.template store<0>(p.c, stride);
  if constexpr (N > 1) t.template store<1>(p.c + kTileLanes, stride);
  if constexpr (M > 1) t.template store<2>(lower, stride);
  if constexpr (M > 1 && N > 1) t.template store<3>(lower + kTileLanes, stride);
}

}  // namespace longshot
