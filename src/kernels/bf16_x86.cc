#include "kernels/bf16_x86.h"

#include <hwy/base.h>

#if HWY_ARCH_X86_64
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms of GCC 12 on its own intrinsics
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace longshot {
namespace {

constexpr int kAskForFeature = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
constexpr unsigned kAvx512State = 0xe6, kTileState = 0x60000;

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Cpuid(unsigned leaf, unsigned part) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }
};

// The state that the system saves for threads.
unsigned saved_state() {
  if ((Cpuid(1, 0).c >> 27 & 1) == 0) return 0;
  unsigned low = 0, high = 0;  // NOLINT(*-const-correctness): written below
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

bool has_bf16_pairs() {
  const Cpuid features(7, 0), more(7, 1);
  const bool avx512 = (features.b >> 16 & 1) && (features.b >> 30 & 1);  // F, BW
  return avx512 && (more.a >> 5 & 1) && (saved_state() & kAvx512State) == kAvx512State;
}

bool has_bf16_tiles() {
  const Cpuid features(7, 0);
  return (features.d >> 22 & 1) && (features.d >> 24 & 1) && (saved_state() & kTileState) == kTileState &&
         has_bf16_pairs() && ::syscall(SYS_arch_prctl, kAskForFeature, kTileData) == 0;
}

}  // namespace longshot

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")
#include "kernels/bf16_tiles-inl.h"  // compiled for these instructions

namespace longshot {
namespace {

using Rows = __m512i[kTileLanes];

// Up to 32 numbers of a row, rounded.
__m512i rounded_row(const float* x, int64_t count) {
  const auto low = static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
  const auto high = static_cast<__mmask16>(count >= 32 ? 0xffff : count <= 16 ? 0 : (1u << (count - 16)) - 1);
  const __m512bh v = _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + 16), _mm512_maskz_loadu_ps(low, x));
  return reinterpret_cast<__m512i>(v);
}

__m512i rounded_row(const uint16_t* x, int64_t count) {
  return _mm512_maskz_loadu_epi16(count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1, x);
}

// Up to 16 numbers of two rows, rounded, side by side: the upper row's in the lower halves.
__m512i rounded_pairs(const float* upper, const float* lower, int64_t count) {
  alignas(64) static constexpr uint16_t kSideBySide[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
  const __m512 second = lower ? _mm512_maskz_loadu_ps(mask, lower) : _mm512_setzero_ps();
  const __m512bh v = _mm512_cvtne2ps_pbh(second, _mm512_maskz_loadu_ps(mask, upper));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kSideBySide), reinterpret_cast<__m512i>(v));
}

__m512i rounded_pairs(const uint16_t* upper, const uint16_t* lower, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
  const __m512i first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, upper));
  if (!lower) return first;
  const __m512i second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, lower));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

// A pair of numbers in every lane.
__m512i every_lane(const uint16_t* pair) {
  int32_t both = 0;
  std::memcpy(&both, pair, sizeof both);
  __m512i v = _mm512_set1_epi32(both);  // NOLINT(*-const-correctness): clang writes it
#if defined(__clang__)
  __asm__("" : "+v"(v));  // clang 16 crashes when it folds the broadcast into the product
#endif
  return v;
}

// r[i] word j becomes r[j] word i: in blocks of 128 bits first, then the blocks.
void turn(Rows& r) {
  Rows s;
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    s[i] = _mm512_unpacklo_epi64(a, c), s[i + 1] = _mm512_unpackhi_epi64(a, c);
    s[i + 2] = _mm512_unpacklo_epi64(b, d), s[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(s[i], s[i + 4], 0x88), b = _mm512_shuffle_i32x4(s[i], s[i + 4], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0x88),
                  d = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88), r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88), r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

// GCC's intrinsics take no template argument for a tile.
struct AmxTiles {
  template <int T>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// C[R, 16]: c, then by FMA the odd and the even product of each pair.
template <int64_t R>
void pairs_of_rows(const TileBlock& p) {
  __m512 sum[R];
  for (int64_t r = 0; r < R; ++r) sum[r] = p.accumulate ? _mm512_loadu_ps(p.c + r * p.c_stride) : _mm512_setzero_ps();
  const uint16_t *a = p.a, *b = p.b;
  for (int64_t step = 0; step < p.steps; ++step, a += kTileNumbers, b += kTileNumbers) {
    for (int64_t pair = 0; pair < kTileDepth / 2; ++pair) {
      const __m512i columns = _mm512_loadu_si512(b + pair * 2 * kTileLanes);
      for (int64_t r = 0; r < R; ++r) {
        const __m512i row = every_lane(a + r * kTileDepth + 2 * pair);
        sum[r] = _mm512_dpbf16_ps(sum[r], reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(columns));
      }
    }
  }
  for (int64_t r = 0; r < R; ++r) _mm512_storeu_ps(p.c + r * p.c_stride, sum[r]);
}

template <class T>
void pack(const T* x, const TileSource& from, Operand operand, uint16_t* tile) {
  Rows r;
  for (int64_t i = 0; i < kTileLanes; ++i) {
    if (from.along) {
      r[i] = i < from.lanes ? rounded_row(x + i * from.stride, from.depth) : _mm512_setzero_si512();
      continue;
    }
    const T* upper = x + 2 * i * from.stride;
    r[i] = 2 * i < from.depth ? rounded_pairs(upper, 2 * i + 1 < from.depth ? upper + from.stride : nullptr, from.lanes)
                              : _mm512_setzero_si512();
  }
  if (from.along != (operand == Operand::kA)) turn(r);
  for (int64_t i = 0; i < kTileLanes; ++i) _mm512_storeu_si512(tile + i * kTileDepth, r[i]);
}

void configure_tiles() {
  alignas(64) static constexpr TileConfig config;
  _tile_loadconfig(&config);
}
void release_tiles() { _tile_release(); }

}  // namespace

void pack_tile_x86(const TileSource& from, Operand operand, uint16_t* tile) {
  from.x.halves ? pack(from.x.halves, from, operand, tile) : pack(from.x.floats, from, operand, tile);
}

// A session must live: it has configured the tiles. NOLINTNEXTLINE(readability-convert-member-functions-to-static)
void AmxSession::block(const TileBlock& p, int64_t strips, int64_t panels) {
  AmxTiles tiles;
  if (strips == 2) {
    panels == 2 ? tile_block<2, 2>(tiles, p) : tile_block<2, 1>(tiles, p);
  } else {
    panels == 2 ? tile_block<1, 2>(tiles, p) : tile_block<1, 1>(tiles, p);
  }
}

void pairs_block(const TileBlock& p) {
  if (p.rows <= 1) return pairs_of_rows<1>(p);
  if (p.rows <= 2) return pairs_of_rows<2>(p);
  if (p.rows <= 4) return pairs_of_rows<4>(p);
  if (p.rows <= 8) return pairs_of_rows<8>(p);
  pairs_of_rows<kTileLanes>(p);
}

// Sixteen independent sums hide the latency.
double pairs_loop(int64_t rounds, float* sink) {
  constexpr int kSums = 16;
  constexpr double kFlops = 2.0 * kTileDepth;                                 // of an instruction: 16 pairs
  const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));  // 0.5
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i) + *sink);
  for (int64_t round = 0; round < rounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, factor);
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  *sink = _mm512_cvtss_f32(sums[0]);
  return kFlops * kSums * static_cast<double>(rounds);
}

// Four sums of the tiles of two strips and two panels, as products have them.
double tiles_loop(int64_t rounds, float* sink) {
  const AmxSession session;
  AmxTiles tiles;
  tiles.zero<0>(), tiles.zero<1>(), tiles.zero<2>(), tiles.zero<3>();
  tiles.zero<4>(), tiles.zero<5>(), tiles.zero<6>(), tiles.zero<7>();
  for (int64_t round = 0; round < rounds; ++round) {
    tiles.multiply<0, 4, 6>(), tiles.multiply<1, 4, 7>(), tiles.multiply<2, 5, 6>(), tiles.multiply<3, 5, 7>();
  }
  alignas(64) float c[kTileLanes * kTileLanes];
  tiles.store<0>(c, kTileLanes * static_cast<int64_t>(sizeof(float)));
  *sink = c[0];
  return 2.0 * 4 * kTileLanes * kTileNumbers * static_cast<double>(rounds);
}

}  // namespace longshot
HWY_POP_ATTRIBUTES

namespace longshot {
AmxSession::AmxSession() { configure_tiles(); }
AmxSession::~AmxSession() { release_tiles(); }
}  // namespace longshot

#else

namespace longshot {
bool has_bf16_tiles() { return false; }
bool has_bf16_pairs() { return false; }
void pack_tile_x86(const TileSource&, Operand, uint16_t*) {}
void pairs_block(const TileBlock&) {}
double pairs_loop(int64_t, float*) { return 0; }
double tiles_loop(int64_t, float*) { return 0; }
AmxSession::AmxSession() = default;
AmxSession::~AmxSession() = default;
void AmxSession::block(const TileBlock&, int64_t, int64_t) {}
}  // namespace longshot
#endif
