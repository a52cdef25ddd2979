#include "formats/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace longshot {
namespace {

constexpr GgmlType other(uint32_t type) { return static_cast<GgmlType>(type); }

constexpr std::array<GgmlLayout, 35> kLayouts{{{GgmlType::kF32, "F32", 1, 4},
                                               {GgmlType::kF16, "F16", 1, 2},
                                               {other(2), "Q4_0", 32, 18},
                                               {other(3), "Q4_1", 32, 20},
                                               {other(6), "Q5_0", 32, 22},
                                               {other(7), "Q5_1", 32, 24},
                                               {GgmlType::kQ8_0, "Q8_0", 32, 34},
                                               {other(9), "Q8_1", 32, 36},
                                               {other(10), "Q2_K", 256, 84},
                                               {other(11), "Q3_K", 256, 110},
                                               {GgmlType::kQ4_K, "Q4_K", 256, 144},
                                               {other(13), "Q5_K", 256, 176},
                                               {GgmlType::kQ6_K, "Q6_K", 256, 210},
                                               {other(15), "Q8_K", 256, 292},
                                               {other(16), "IQ2_XXS", 256, 66},
                                               {other(17), "IQ2_XS", 256, 74},
                                               {other(18), "IQ3_XXS", 256, 98},
                                               {other(19), "IQ1_S", 256, 50},
                                               {other(20), "IQ4_NL", 32, 18},
                                               {other(21), "IQ3_S", 256, 110},
                                               {other(22), "IQ2_S", 256, 82},
                                               {other(23), "IQ4_XS", 256, 136},
                                               {other(24), "I8", 1, 1},
                                               {other(25), "I16", 1, 2},
                                               {other(26), "I32", 1, 4},
                                               {other(27), "I64", 1, 8},
                                               {other(28), "F64", 1, 8},
                                               {other(29), "IQ1_M", 256, 56},
                                               {GgmlType::kBF16, "BF16", 1, 2},
                                               {other(34), "TQ1_0", 256, 54},
                                               {other(35), "TQ2_0", 256, 66},
                                               {other(39), "MXFP4", 32, 17},
                                               {other(40), "NVFP4", 64, 36},
                                               {other(41), "Q1_0", 128, 18},
                                               {other(42), "Q2_0", 64, 18}}};

constexpr size_t kSmall = 32;   // elements of a Q8_0 block
constexpr size_t kLarge = 256;  // of a K block

float half_at(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return half_to_float(bits);
}

int unsigned_at(const std::byte* at) { return std::to_integer<int>(*at); }
int signed_at(const std::byte* at) { return static_cast<int8_t>(std::to_integer<uint8_t>(*at)); }

// half d, i8 q[32]:   x_i = d q_i
void read_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (size_t i = 0; i < kSmall; ++i) out[i] = static_cast<float>(signed_at(block + 2 + i)) * d;
}

//   d = max|x| / 127,   q_i = round(x_i (1 / d)), halves away from zero
void write_q8_0(const float* x, std::byte* block) {
  float largest = 0;
  for (size_t i = 0; i < kSmall; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127.0f;
  const float inverse = std::isfinite(1.0f / d) ? 1.0f / d : 0.0f;
  const uint16_t stored = float_to_half(d);
  std::memcpy(block, &stored, sizeof stored);
  for (size_t i = 0; i < kSmall; ++i) block[2 + i] = static_cast<std::byte>(std::lround(x[i] * inverse));
}

// half d, half e, u8 scales[12], u8 q[128]:   x = d s_g q - e m_g for group g of 32 elements.
// Eight pairs (s, m) of 6 bits: the first four in the low bits of scales 0..3 and 4..7, the others in the halves of
// scales 8..11 and, for their two high bits, in the top bits of scales 0..7.
void read_q4_k(const std::byte* block, float* out) {
  const float d = half_at(block), e = half_at(block + 2);
  const std::byte *scales = block + 4, *q = block + 16;
  const auto at = [&](size_t i) { return unsigned_at(scales + i); };
  for (size_t g = 0; g < 8; ++g) {
    const int s = g < 4 ? at(g) & 63 : (at(g + 4) & 15) | (at(g - 4) >> 6) << 4;
    const int m = g < 4 ? at(g + 4) & 63 : at(g + 4) >> 4 | (at(g) >> 6) << 4;
    const float scale = d * static_cast<float>(s), least = e * static_cast<float>(m);
    const std::byte* from = q + g / 2 * 32;  // two groups share 32 bytes: low and high halves
    for (size_t i = 0; i < 32; ++i) {
      const int value = g % 2 == 0 ? unsigned_at(from + i) & 15 : unsigned_at(from + i) >> 4;
      out[g * 32 + i] = scale * static_cast<float>(value) - least;
    }
  }
}

// u8 low[128], u8 high[64], i8 scales[16], half d:   x = d s_(i / 16) (q - 32), q of 6 bits.
// In each half of 128 elements, quarter c has its low 4 bits in bytes 32 (c % 2) + l of 64 (their high halves for c > 1),
// its high 2 bits in bits 2 c of byte l of 32.
void read_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block + 208);
  for (size_t half = 0; half < 2; ++half) {
    const std::byte *low = block + half * 64, *high = block + 128 + half * 32, *scales = block + 192 + half * 8;
    for (size_t c = 0; c < 4; ++c) {
      for (size_t l = 0; l < 32; ++l) {
        const int four = unsigned_at(low + 32 * (c % 2) + l) >> (c > 1 ? 4 : 0) & 15;
        const int two = unsigned_at(high + l) >> (2 * c) & 3;
        const int scale = signed_at(scales + 2 * c + l / 16);
        out[half * 128 + c * 32 + l] = d * static_cast<float>(scale) * static_cast<float>((four | two << 4) - 32);
      }
    }
  }
}

template <size_t kElements, class ReadBlock>
void read_each(std::span<const std::byte> bytes, std::span<float> out, ReadBlock read_block) {
  const size_t stride = out.empty() ? 0 : bytes.size() / (out.size() / kElements);
  for (size_t i = 0; i < out.size() / kElements; ++i) read_block(bytes.data() + i * stride, out.data() + i * kElements);
}

}  // namespace

const GgmlLayout* find_ggml_layout(uint32_t type) {
  const auto* found = std::ranges::find(kLayouts, other(type), &GgmlLayout::type);
  return found == kLayouts.end() ? nullptr : found;
}

const GgmlLayout& ggml_layout(GgmlType type) {
  const GgmlLayout* found = find_ggml_layout(static_cast<uint32_t>(type));
  assert(found);
  return *found;
}

std::optional<DType> plain_dtype(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return DType::kF32;
    case GgmlType::kF16:
      return DType::kF16;
    case GgmlType::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

bool is_readable(GgmlType type) {
  return plain_dtype(type) || type == GgmlType::kQ8_0 || type == GgmlType::kQ4_K || type == GgmlType::kQ6_K;
}

void read_blocks(GgmlType type, std::span<const std::byte> bytes, std::span<float> out) {
  const GgmlLayout& layout = ggml_layout(type);
  assert(out.size() % layout.elements == 0 && bytes.size() == out.size() / layout.elements * layout.bytes);
  if (const auto plain = plain_dtype(type)) return convert_to_float(*plain, bytes, out);
  switch (type) {
    case GgmlType::kQ8_0:
      return read_each<kSmall>(bytes, out, read_q8_0);
    case GgmlType::kQ4_K:
      return read_each<kLarge>(bytes, out, read_q4_k);
    case GgmlType::kQ6_K:
      return read_each<kLarge>(bytes, out, read_q6_k);
    default:
      fail("elements of type {} are not read", layout.name);
  }
}

void write_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out) {
  const GgmlLayout& layout = ggml_layout(type);
  assert(values.size() % layout.elements == 0 && out.size() == values.size() / layout.elements * layout.bytes);
  if (const auto plain = plain_dtype(type)) return convert_from_float(*plain, values, out);
  require(type == GgmlType::kQ8_0, "elements of type {} are not written", layout.name);
  for (size_t i = 0; i < values.size() / kSmall; ++i)
    write_q8_0(values.data() + i * kSmall, out.data() + i * layout.bytes);
}

}  // namespace longshot
