#include "formats/dtype.h"

#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace longshot {
namespace {

struct DTypeEntry {
  DType dtype;
  size_t size;
  std::string_view name;
};

constexpr std::array<DTypeEntry, 13> kEntries{{{DType::kF64, 8, "F64"},
                                               {DType::kF32, 4, "F32"},
                                               {DType::kF16, 2, "F16"},
                                               {DType::kBF16, 2, "BF16"},
                                               {DType::kI64, 8, "I64"},
                                               {DType::kI32, 4, "I32"},
                                               {DType::kI16, 2, "I16"},
                                               {DType::kI8, 1, "I8"},
                                               {DType::kU64, 8, "U64"},
                                               {DType::kU32, 4, "U32"},
                                               {DType::kU16, 2, "U16"},
                                               {DType::kU8, 1, "U8"},
                                               {DType::kBool, 1, "BOOL"}}};

const DTypeEntry& entry(DType dtype) {
  const DTypeEntry& found = kEntries[static_cast<size_t>(dtype)];
  assert(found.dtype == dtype);
  return found;
}

template <class Stored, class Convert>
void convert_each(const std::byte* from, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    out[i] = convert(value);
  }
}

// Infinities and NaNs have every bit of the exponent set.
template <class Bits>
bool exponents_below(std::span<const std::byte> bytes, Bits exponent) {
  Bits bad = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    bad = static_cast<Bits>(bad | static_cast<Bits>((value & exponent) == exponent));
  }
  return bad == 0;
}

}  // namespace

size_t dtype_size(DType dtype) { return entry(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DTypeEntry& e : kEntries) {
    if (e.name == name) return e.dtype;
  }
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::optional<int64_t> element_count(const Shape& shape) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
    } else {
      if (count > kLimit / extent) return std::nullopt;
      count *= extent;
    }
  }
  return empty ? 0 : count;
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {  // zero and subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);  // infinity, NaN
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);           // bias 15 to bias 127
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // from 65520 on: infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 64u);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

void convert_to_float(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  assert(bytes.size() >= out.size() * dtype_size(dtype));
  if (out.empty()) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
      return;
    case DType::kF64:
      return convert_each<double>(bytes.data(), out, [](double v) { return static_cast<float>(v); });
    case DType::kF16:
      return convert_each<uint16_t>(bytes.data(), out, half_to_float);
    case DType::kBF16:
      return convert_each<uint16_t>(bytes.data(), out, bfloat_to_float);
    default:
      fail("elements of type {} are not floating-point numbers", dtype_name(dtype));
  }
}

void convert_from_float(DType dtype, std::span<const float> values, std::span<std::byte> out) {
  assert(out.size() == values.size() * dtype_size(dtype));
  if (values.empty()) return;
  const auto store_each = [&](auto convert) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = convert(values[i]);
      std::memcpy(out.data() + i * sizeof bits, &bits, sizeof bits);
    }
  };
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out.data(), values.data(), out.size());
      return;
    case DType::kF16:
      return store_each(float_to_half);
    case DType::kBF16:
      return store_each(float_to_bfloat);
    default:
      fail("elements of type {} are not written", dtype_name(dtype));
  }
}

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64:
      return exponents_below<uint64_t>(bytes, 0x7FF0000000000000u);
    case DType::kF32:
      return exponents_below<uint32_t>(bytes, 0x7F800000u);
    case DType::kF16:
      return exponents_below<uint16_t>(bytes, 0x7C00u);
    case DType::kBF16:
      return exponents_below<uint16_t>(bytes, 0x7F80u);
    default:
      fail("elements of type {} are not floating-point numbers", dtype_name(dtype));
  }
}

}  // namespace longshot
