#include "kernels/panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/panels.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/panels-inl.h"
// clang-format on

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

struct StoreTo {
  float* to;
  int64_t first;
  HWY_INLINE void operator()(int64_t k, const VPanel (&w)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(w[v], DPanel(), to + (k - first) * kPanel + v * kLanes);
  }
};

void ExpandImpl(const Panels& w, const PanelPart& part, float* to) {  // NOLINT(*-non-const-parameter): it is written
  if (is_mapped(w.type)) return promote_panel(w, part, to);
  StoreTo store{to, part.first};
  const PanelRange range{w, part.panel, part.first, part.first + part.count};
  if (w.type == WeightType::kF32) return FloatReader::read<1>(range, store);
  Bf16Reader::read<1>(range, store);
}

void PromoteImpl(const Panels& w, int64_t row, float* to) {  // NOLINT(*-non-const-parameter): it is written
  promote(w.type, w.data + static_cast<size_t>(row * w.in) * sizeof(uint16_t), w.in, to);
}

// q[i] = x[i] / s to the nearest, ties to even.
void QuantizeImpl(const float* x, float s, int64_t n, int32_t* q) {
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    hn::StoreU(hn::NearestInt(hn::Div(hn::LoadU(d, x + c), hn::Set(d, s))), di, q + c);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {
namespace {

HWY_EXPORT(ExpandImpl);
HWY_EXPORT(PromoteImpl);
HWY_EXPORT(QuantizeImpl);

int64_t blocks_of(int64_t in) { return (in + kScaled - 1) / kScaled; }

// Inputs side by side in pairs: [k / 2, lane, 2]
int64_t bf16_index(int64_t k, int64_t lane) { return (k / 2 * kPanel + lane) * 2 + k % 2; }
int64_t int8_index(int64_t k, int64_t lane) { return k / 2 * int64_t{kInt8Pair} + lane * 2 + k % 2; }

bool all_finite(const float* x, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) finite &= std::abs(x[i]) <= std::numeric_limits<float>::max();
  return finite;
}

// Lane `lane` of a panel from a row of floats x[n].
bool store_bf16(const float* x, int64_t n, int64_t lane, std::byte* panel) {
  constexpr int64_t kTogether = 256;
  auto* to = reinterpret_cast<uint16_t*>(panel);
  float rounded[kTogether];
  bool finite = true;
  for (int64_t first = 0; first < n; first += kTogether) {
    const int64_t count = std::min(kTogether, n - first);
    round_to_bf16(x + first, rounded, count);
    finite &= all_finite(rounded, count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = first + i;
      to[bf16_index(k, lane)] = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded[i]) >> 16);
    }
  }
  return finite;
}

// Row `row` of a matrix from floats x[n].
bool store_int8(const float* x, int64_t n, int64_t row, std::byte* to) {
  constexpr float kMost = 127;
  bool finite = all_finite(x, n);
  int32_t q[kScaled];
  for (int64_t first = 0; first < n; first += kScaled) {
    const int64_t count = std::min(kScaled, n - first);
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(x[first + i]));
    const float s = most / kMost;
    finite &= s * kMost <= std::numeric_limits<float>::max();
    if (!finite) return false;
    if (s < std::numeric_limits<float>::min()) continue;  // all 0
    const Int8Place place = int8_place(n, row / kPanel, first / kScaled);
    reinterpret_cast<float*>(to + place.scales)[row % kPanel] = s;
    HWY_DYNAMIC_DISPATCH(QuantizeImpl)(x + first, s, count, q);
    auto* numbers = reinterpret_cast<int8_t*>(to + place.numbers);
    for (int64_t i = 0; i < count; ++i) numbers[int8_index(i, row % kPanel)] = static_cast<int8_t>(q[i]);
  }
  return finite;
}

}  // namespace

Panels Panels::outputs(int64_t first, int64_t count) const {
  assert(first % outputs_together(type) == 0 && first + count <= out);
  if (is_mapped(type)) return {type, count, in, data + stored_bytes(type, first, in)};
  return {type, count, in, data + static_cast<size_t>(first / kPanel) * panel_bytes(type, in)};
}

Int8Place int8_place(int64_t in, int64_t panel, int64_t block) {
  constexpr size_t kScales = kInt8Panels * kPanel * sizeof(float);
  const auto begin = static_cast<size_t>(panel / kInt8Panels * blocks_of(in) + block) * kInt8BlockBytes;
  const auto turn = static_cast<size_t>(panel % kInt8Panels);
  return {begin + turn * kPanel * sizeof(float), begin + kScales + turn * 2 * kPanel};
}

int64_t outputs_together(WeightType type) {
  if (is_mapped(type)) return 1;
  return type == WeightType::kInt8 ? kInt8Panels * kPanel : kPanel;
}

size_t panel_bytes(WeightType type, int64_t in) {
  switch (type) {
    case WeightType::kF32:
      return static_cast<size_t>(in * kPanel) * sizeof(float);
    case WeightType::kBf16:
      return static_cast<size_t>(round_up(in, kTileDepth) * kPanel) * sizeof(uint16_t);
    case WeightType::kInt8:
      return static_cast<size_t>(blocks_of(in)) * kInt8BlockBytes / kInt8Panels;
    case WeightType::kMappedF16:
    case WeightType::kMappedBf16:
      return static_cast<size_t>(in * kPanel) * sizeof(uint16_t);
  }
  return 0;
}

size_t stored_bytes(WeightType type, int64_t out, int64_t in) {
  if (is_mapped(type)) return static_cast<size_t>(out * in) * sizeof(uint16_t);
  return static_cast<size_t>(round_up(out, outputs_together(type)) / kPanel) * panel_bytes(type, in);
}

bool store_panels(ConstMat w, WeightType type, std::byte* to) {
  assert(!is_mapped(type));
  if (type == WeightType::kF32) {
    pack_panels(w.data, w.stride, w.rows, w.cols, reinterpret_cast<float*>(to));
    return true;
  }
  std::memset(to, 0, stored_bytes(type, w.rows, w.cols));
  const size_t apart = panel_bytes(type, w.cols);
  bool finite = true;
  for (int64_t r = 0; r < w.rows; ++r) {
    finite &= type == WeightType::kInt8
                  ? store_int8(w.row(r), w.cols, r, to)
                  : store_bf16(w.row(r), w.cols, r % kPanel, to + static_cast<size_t>(r / kPanel) * apart);
  }
  return finite;
}

void expand_panel(const Panels& w, const PanelPart& part, float* to) {
  if (w.type != WeightType::kInt8) return HWY_DYNAMIC_DISPATCH(ExpandImpl)(w, part, to);
  for (int64_t i = 0; i < part.count; ++i, to += kPanel) {
    const int64_t k = part.first + i;
    const Int8Place place = int8_place(w.in, part.panel, k / kScaled);
    const auto* scales = reinterpret_cast<const float*>(w.data + place.scales);
    const auto* numbers = reinterpret_cast<const int8_t*>(w.data + place.numbers);
    for (int64_t lane = 0; lane < kPanel; ++lane)
      to[lane] = scales[lane] * static_cast<float>(numbers[int8_index(k % kScaled, lane)]);
  }
}

void expand_row(const Panels& w, int64_t row, float scale, float* to) {
  if (is_mapped(w.type)) {
    HWY_DYNAMIC_DISPATCH(PromoteImpl)(w, row, to);
    for (int64_t c = 0; c < w.in; ++c) to[c] *= scale;
    return;
  }
  constexpr int64_t kTogether = 64;
  float part[kTogether * kPanel];
  for (int64_t first = 0; first < w.in; first += kTogether) {
    const int64_t count = std::min(kTogether, w.in - first);
    expand_panel(w, {row / kPanel, first, count}, part);
    for (int64_t i = 0; i < count; ++i) to[first + i] = scale * part[i * kPanel + row % kPanel];
  }
}

}  // namespace longshot
#endif  // HWY_ONCE
