// Keys and values as attention reads them: the cache of a decoder, scratch memory elsewhere. Each head of each sequence
// has a ring of tiles, of a size of its own; what no longer fits drops the oldest.
#pragma once
#include <cstdint>
#include <span>

#include "base/context.h"
#include "base/view.h"
#include "base/workspace.h"
#include "kernels/numbers.h"

namespace longshot {

// One vector of D floats per (sequence, token, head), anywhere in memory. Strides in floats.
template <class T>
struct BasicHeads {
  T* data = nullptr;
  int64_t sequence = 0, token = 0, head = 0;
  T* at(int64_t b, int64_t t, int64_t h) const { return data + b * sequence + t * token + h * head; }
  operator BasicHeads<const T>() const { return {data, sequence, token, head}; }
};
using Heads = BasicHeads<float>;
using ConstHeads = BasicHeads<const float>;

// The same of numbers that may be bf16.
template <class F, class H>
struct BasicNumberHeads {
  BasicNumbers<F, H> data;
  int64_t sequence = 0, token = 0, head = 0;

  BasicNumberHeads() = default;
  BasicNumberHeads(BasicNumbers<F, H> data_, int64_t sequence_, int64_t token_, int64_t head_)
      : data(data_), sequence(sequence_), token(token_), head(head_) {}
  template <class T>
    requires std::convertible_to<T*, F*>
  BasicNumberHeads(const BasicHeads<T>& h) : BasicNumberHeads(h.data, h.sequence, h.token, h.head) {}
  operator BasicNumberHeads<const F, const H>() const { return {data, sequence, token, head}; }

  BasicNumbers<F, H> at(int64_t b, int64_t t, int64_t h) const { return data + (b * sequence + t * token + h * head); }
  // REQUIRES: they are floats.
  BasicHeads<F> floats() const {
    assert(!data.halves);
    return {data.floats, sequence, token, head};
  }
};
using NumberHeads = BasicNumberHeads<float, uint16_t>;
using ConstNumberHeads = BasicNumberHeads<const float, const uint16_t>;

// Head h in columns [h D, (h + 1) D) of a matrix; sequences follow each other after `tokens` rows.
inline Heads heads_of(Mat m, int64_t tokens, int64_t head_dim) {
  return {m.data, tokens * m.stride, m.stride, head_dim};
}
inline ConstHeads heads_of(ConstMat m, int64_t tokens, int64_t head_dim) {
  return {m.data, tokens * m.stride, m.stride, head_dim};
}

template <class F, class H>
BasicNumberHeads<F, H> heads_of(const BasicNumberMat<F, H>& m, int64_t tokens, int64_t head_dim) {
  return {m.data, tokens * m.stride, m.stride, head_dim};
}

// Rotation of queries and keys: pair c of the first 2 * cos.cols dimensions turns by the angle of row p - first at
// position p.
struct Rotation {
  ConstMat cos, sin;         // [positions, pairs]; pairs = 0: none
  bool interleaved = false;  // pairs are (2c, 2c + 1); otherwise (c, c + pairs)
  int64_t first = 0;         // position of the first row
  bool fixed = false;        // the first row holds at every position
};

constexpr int64_t kKeyTile = 128;  // tokens of a tile: a full ring forgets so many at once

struct KeyRange {
  int64_t first = 0, last = 0;  // positions [first, last)
  bool empty() const { return first >= last; }
};

// Position p is token p % capacity of the ring.
struct KeyRing {
  int64_t capacity = 0;     // tokens, a multiple of the key tile
  float* keys = nullptr;    // [capacity / 16, D, 16]
  float* values = nullptr;  // [capacity, D padded to 16]
  float* norms = nullptr;   // [capacity / key tile] at least the largest |k| in the tile
  KeyRange held = {};       // the positions that can be read

  void layout(Layout& at, int64_t head_dim, int64_t tokens);
  float norm_of(int64_t tile) const { return norms[tile % (capacity / kKeyTile)]; }
};

struct KeyStore {
  int64_t sequences = 0, heads = 0, head_dim = 0;
  std::span<KeyRing> rings;  // [B H]
  // Which of its sequences a call's are, each at most once; empty: all, in order.
  std::span<const int32_t> chosen = {};

  struct Size {
    int64_t sequences = 0, heads = 0, head_dim = 0;
    int64_t tokens = 0;  // of every ring; 0: the rings get their memory later
  };
  void layout(Layout& at, const Size& size);
  // Of a call's sequence b: its place among the rings.
  int64_t ring(int64_t b, int64_t head) const {
    return (chosen.empty() ? b : chosen[static_cast<size_t>(b)]) * heads + head;
  }
};

struct NewKeys {
  ConstNumberHeads k, v;              // [B, count, heads]
  int64_t count = 0;                  // of each sequence
  std::span<const int64_t> position;  // [B] of the first
};
// Stores keys, rotated, and values at their positions. What a ring held from there on is replaced; what it held before
// stays, as far as there is room and no gap between.
void append_keys(Context& context, const NewKeys& keys, const Rotation& rotation, KeyStore& store);

}  // namespace longshot
