// Element types of GGUF files: plain numbers, and blocks of quantised ones that share scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/dtype.h"

namespace longshot {

// The numbers are ggml's. Those that are read have names here; of the others the table in the .cc knows the sizes.
enum class GgmlType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14, kBF16 = 30 };

struct GgmlLayout {
  GgmlType type;
  std::string_view name;  // "Q8_0"
  uint64_t elements;      // of a block
  uint64_t bytes;         // of a block
};

const GgmlLayout* find_ggml_layout(uint32_t type);  // null: no such type
const GgmlLayout& ggml_layout(GgmlType type);
bool is_readable(GgmlType type);
// The same numbers as a type of safetensors; none for blocks.
std::optional<DType> plain_dtype(GgmlType type);

// The values of whole blocks, as ggml defines them. REQUIRES: is_readable(type), bytes of just out.size() elements.
void read_blocks(GgmlType type, std::span<const std::byte> bytes, std::span<float> out);
// The other way, for F32, F16, BF16 and Q8_0: ggml's reference rounding. REQUIRES: whole blocks, and room for them.
void write_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace longshot
