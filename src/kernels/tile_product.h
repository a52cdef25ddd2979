// Products of matrices that fit a cache: the inner loop of every matrix product and of attention. Serial.
#pragma once
#include <cstdint>

#include "kernels/numbers.h"

namespace longshot {

constexpr int64_t kPanel = 16;  // columns of a packed panel

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Which part of a causal tile is worth computing. Element (i, j) of the score tile, query row i and key column j, is
// visible iff j <= i + diagonal.
enum class Causal {
  kFull,    // compute everything
  kScores,  // C is the score tile: leave out blocks of C that are wholly invisible
  kRows,    // A is the score tile: stop the inner sum at the last visible key
  kColumns  // A is the score tile transposed: start the inner sum at the first query that sees the key
};

// C[m, n] = A[m, k] B[k, n], or += when `accumulate`. n is a multiple of kPanel.
struct TileProduct {
  const float* a;
  int64_t a_stride;  // between rows of A; between rows of A^T when transposed
  bool a_transposed;
  const float* b;
  int64_t b_stride;  // between rows inside a panel of B
  int64_t b_panel;   // between panels of kPanel columns of B
  float* c;
  int64_t c_stride;
  int64_t m, n, k;
  bool accumulate = false;
  Causal causal = Causal::kFull;
  int64_t diagonal = 0;
};
void tile_product(const TileProduct& p);

// What suits the registers and caches of the instruction set in use.
struct ProductBlocking {
  int64_t rows;   // of the register block
  int64_t depth;  // the longest inner dimension of one tile product
};
ProductBlocking product_blocking();

// Columns of x in strips of kPanel: y[s y_strip + r y_stride + lane] = x[r][kPanel s + lane]; lanes past `columns` become 0.
struct StripCopy {
  ConstNumbers x;
  int64_t x_stride;
  int64_t rows, columns;
  float* y;
  int64_t y_stride, y_strip;
};
void copy_strips(const StripCopy& p);

// panels[p][d][lane] = x[kPanel p + lane][d]; lanes past `rows` become 0.
void pack_panels(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float* panels);

}  // namespace longshot
