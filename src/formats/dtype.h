// Element types of stored tensors, and their way to float32 and back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longshot {

enum class DType { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

using Shape = std::vector<int64_t>;

size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);  // as safetensors spells it: "F32", "BF16", "BOOL"
std::optional<DType> dtype_of_name(std::string_view name);
bool is_floating(DType dtype);

// Number of elements; none for a negative extent or a product above 2^62. A scalar (no extents) has one.
std::optional<int64_t> element_count(const Shape& shape);

std::string shape_text(const Shape& shape);  // "[20000, 1024]"

float half_to_float(uint16_t bits);
float bfloat_to_float(uint16_t bits);
// To the nearest, ties to even; beyond the largest: infinity.
uint16_t float_to_half(float value);
uint16_t float_to_bfloat(float value);

// Converts out.size() elements that stand side by side from `bytes` on, at any alignment. `dtype` must be
// floating; `bytes` must hold them.
void convert_to_float(DType dtype, std::span<const std::byte> bytes, std::span<float> out);
// The other way, to F32, F16 or BF16, rounded to the nearest. `out` must have room for just as many elements.
void convert_from_float(DType dtype, std::span<const float> values, std::span<std::byte> out);
// Whether none of the elements of a floating type is infinite or NaN.
bool all_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace longshot
