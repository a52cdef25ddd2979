// Products whose operands are rounded to bf16, the upper half of a float: to the nearest, ties to even; numbers too small
// to be normal become 0, as the instructions read them. Sums are of floats.
//
// Three ways, the best that the CPU has: AMX tiles; AVX512_BF16's dot products of pairs; floats that were rounded. They
// agree up to the rounding of sums. LONGSHOT_BF16=tiles|pairs|rounded asks for a lower one.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/view.h"
#include "kernels/numbers.h"
#include "kernels/panels.h"

namespace longshot {

struct Product;
struct TileProduct;

enum class Bf16Path { kTiles, kPairs, kRounded };
const char* name_of(Bf16Path path);
Bf16Path bf16_path();
bool has_bf16_path(Bf16Path path);

void multiply_bf16(Context& context, const Product& g, Bf16Path path);

// few_rows_product() of x rounded to bf16 with a matrix stored in it: the bits of multiply_bf16().
void few_rows_bf16(Context& context, ConstMat x, const Panels& w, Mat y, Bf16Path path = bf16_path());

// tile_product() of operands rounded to bf16. `scratch`: tile_product_floats(m, n, k).
void tile_product_bf16(const TileProduct& p, Bf16Path path, float* scratch);
int64_t tile_product_floats(int64_t m, int64_t n, int64_t k);

void round_to_bf16(const float* x, float* y, int64_t n);
// y = x, rounded where it is not yet.
void rounded_floats(ConstNumbers x, float* y, int64_t n);

// Operands are packed tile by tile: 16 lanes (rows of A, columns of B) x 32 of the inner dimension. In a tile of A a lane's
// 32 numbers follow each other, in one of B the lanes' pairs do: [inner / 2, lane, 2].
constexpr int64_t kTileLanes = 16, kTileDepth = 32, kTileNumbers = kTileLanes * kTileDepth;

struct TileSource {
  ConstNumbers x;
  int64_t stride;
  bool along;            // the inner dimension runs along rows of x; otherwise lanes do
  int64_t lanes, depth;  // those that there are; the rest of the tile is 0
};
enum class Operand { kA, kB };
void pack_tile(const TileSource& from, Operand operand, uint16_t* tile);

// A block of C of some strips of 16 rows and panels of 16 columns. Operands are tiles one after the other along the inner
// dimension, `steps` of them.
struct TileBlock {
  const uint16_t* a;
  int64_t a_strip;  // numbers from one strip of 16 rows to the next
  const uint16_t* b;
  int64_t b_panel;
  int64_t steps;
  float* c;
  int64_t c_stride;
  bool accumulate;
  int64_t rows = kTileLanes;  // of a strip, that are wanted: the others may be left as they are
};

}  // namespace longshot
