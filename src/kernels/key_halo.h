// Keys of earlier positions that a ring sees and does not hold: tiles of another process's ring, as far as they are at hand.
#pragma once
#include <cstdint>
#include <vector>

namespace longshot {

struct KeyHalo {
  int64_t end = 0;         // tiles [0, end) come before the ring's own
  int64_t from = 0;        // of these [from, end) are at hand, and the first of all
  int64_t key_floats = 0;  // of a tile: its keys, then its values, both as in a ring
  int64_t tile_floats = 0;
  std::vector<float> norms = {};  // [end] of every tile
  std::vector<float> near = {};   // [end - from, tile_floats]: tile end - 1, end - 2, ..
  std::vector<float> first = {};  // [tile_floats] tile 0

  bool has(int64_t tile) const { return tile >= from || tile == 0; }
  const float* keys_of(int64_t tile) const {
    return tile >= from ? near.data() + (end - 1 - tile) * tile_floats : first.data();
  }
  const float* values_of(int64_t tile) const { return keys_of(tile) + key_floats; }
};

}  // namespace longshot
