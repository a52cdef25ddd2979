// Matrices of parameters as they are stored for running: in panels of 16 outputs, as products read them, of floats or of fewer
// bits; or as a file has them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/choice.h"
#include "base/view.h"

namespace longshot {

enum class WeightType {
  kF32,
  kBf16,
  kInt8,
  kMappedF16,  // rows of 16 bits, as they lie in a file: never copied whole
  kMappedBf16
};
// What a model can be stored in.
constexpr Choice<WeightType> kWeightTypes[] = {
    {"f32", WeightType::kF32}, {"bf16", WeightType::kBf16}, {"int8", WeightType::kInt8}};

constexpr int64_t kScaled = 64;                     // inputs that share a scale
constexpr int64_t kInt8Panels = 4;                  // side by side
constexpr size_t kInt8Pair = 2 * 16 * kInt8Panels;  // bytes from one pair of inputs to the next
constexpr size_t kInt8BlockBytes = 16 * kInt8Panels * (sizeof(float) + kScaled);

// W[out, in], panel after panel; outputs and inputs that only fill up are 0. A panel is
//
//   f32    [in, 16] floats
//   bf16   [in / 2, 16, 2] numbers, `in` filled up to a multiple of 32: pairs of inputs side by side, tiles of kernels/bf16.h
//   int8   four panels side by side, so that reading them together is one stream; for every 64 inputs a block of
//          scales s[4, 16] (floats) and numbers q[32, 4, 16, 2], pairs of inputs side by side too
//   mapped [16, in] numbers, at any even address; there are no more rows than outputs
//
// and stands for the floats w:
//
//   bf16   w rounded to the nearest, ties to even; too small to be normal: 0
//   int8   s q,   s = max |w| / 127 over an output's 64 inputs,   q = w / s rounded to the nearest, ties to even
//
// mapped f16 and bf16 for themselves. A product has the bits of a product of floats with these w, with int8 those of kernels/int8_product.h,
// whatever the number of rows and of threads.
struct Panels {
  WeightType type = WeightType::kF32;
  int64_t out = 0, in = 0;
  const std::byte* data = nullptr;

  // The rows of outputs [first, first + count). REQUIRES: first is a multiple of outputs_together(type).
  Panels outputs(int64_t first, int64_t count) const;
};

// Of int8, in bytes: where a panel's part of a block of inputs lies. The next block is kInt8BlockBytes further.
struct Int8Place {
  size_t scales;   // [16]
  size_t numbers;  // [32, 16, 2], pairs kInt8Pair apart
};
Int8Place int8_place(int64_t in, int64_t panel, int64_t block);

int64_t outputs_together(WeightType type);
constexpr bool is_mapped(WeightType type) { return type == WeightType::kMappedF16 || type == WeightType::kMappedBf16; }

size_t panel_bytes(WeightType type, int64_t in);
size_t stored_bytes(WeightType type, int64_t out, int64_t in);
// Writes stored_bytes(type, w.rows, w.cols), of a type that is not mapped. False where a number is not finite, or not in this type.
bool store_panels(ConstMat w, WeightType type, std::byte* to);

// to[i, lane] = w[16 panel + lane, first + i] for i < count.
struct PanelPart {
  int64_t panel, first, count;
};
void expand_panel(const Panels& w, const PanelPart& part, float* to);
// to[c] = scale w[row, c] for c < in.
void expand_row(const Panels& w, int64_t row, float scale, float* to);

}  // namespace longshot
