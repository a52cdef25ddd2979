#include "kernels/attention_keys.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention_head.h"

namespace longshot {
namespace {

// The ring of one head, for writing.
struct RingWriter {
  const KeyRing& ring;
  int64_t dim;

  void write_values(ConstNumbers x, int64_t x_stride, KeyRange at) const {
    const int64_t dp = padded_dim(dim);
    for (int64_t p = at.first; p < at.last;) {
      const int64_t slot = p % ring.capacity, count = std::min(ring.capacity - slot, at.last - p);
      rotate_copy({.x = x + (p - at.first) * x_stride,
                   .x_stride = x_stride,
                   .y = ring.values + slot * dp,
                   .y_stride = dp,
                   .rows = count,
                   .dim = dim,
                   .padded = dp});
      p += count;
    }
  }

  // Rotated keys[count, D] of consecutive positions within one panel.
  void write_keys(const float* rows, int64_t position, int64_t count, bool new_tile) const {
    const int64_t dp = padded_dim(dim), slot = position % ring.capacity, lane = slot % kPanel;
    float* panel = ring.keys + slot / kPanel * dim * kPanel;
    if (count == kPanel) {
      pack_panels(rows, dp, kPanel, dim, panel);
    } else {
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < dim; ++c) panel[c * kPanel + lane + r] = rows[r * dp + c];
      }
    }
    float& norm = ring.norms[slot / kKeyTile];
    if (new_tile) norm = 0;
    for (int64_t r = 0; r < count; ++r) norm = std::max(norm, std::sqrt(dot(rows + r * dp, rows + r * dp, dim)));
  }
};

// What is held once [at.first, at.last) is written.
KeyRange held_after(KeyRange held, KeyRange at, int64_t capacity) {
  const bool goes_on = at.first >= held.first && at.first <= held.last && !held.empty();
  const int64_t oldest_tile = (at.last - 1) / kKeyTile - capacity / kKeyTile + 1;
  return {std::max(goes_on ? held.first : at.first, oldest_tile * kKeyTile), at.last};
}

// `rows`: room for a panel of rotated keys.
void append_head(const NewKeys& from, const Rotation& rotation, KeyStore& store, int64_t task, float* rows) {
  const int64_t b = task / store.heads, h = task % store.heads, dim = store.head_dim, dp = padded_dim(dim);
  const int64_t index = store.ring(b, h);
  const KeyRange at{from.position[static_cast<size_t>(b)], from.position[static_cast<size_t>(b)] + from.count};
  KeyRing& ring = store.rings[static_cast<size_t>(index)];
  const KeyRange after = held_after(ring.held, at, ring.capacity);
  const RingWriter writer{ring, dim};
  writer.write_values(from.v.at(b, 0, h), from.v.token, at);
  for (int64_t p = at.first; p < at.last;) {
    const int64_t count = std::min(kPanel - p % kPanel, at.last - p);
    const RotateCopy key{.x = from.k.at(b, p - at.first, h),
                         .x_stride = from.k.token,
                         .y = rows,
                         .y_stride = dp,
                         .rows = count,
                         .dim = dim,
                         .padded = dp};
    rotate_copy(with_rotation(key, rotation, p, 1));
    writer.write_keys(rows, p, count, p % kKeyTile == 0);
    p += count;
  }
  ring.held = after;
}

}  // namespace

void KeyRing::layout(Layout& at, int64_t head_dim, int64_t tokens) {
  capacity = round_up(tokens, kKeyTile);
  keys = at.array<float>(capacity * head_dim).data();
  values = at.array<float>(capacity * padded_dim(head_dim)).data();
  norms = at.array<float>(capacity / kKeyTile).data();
}

void KeyStore::layout(Layout& at, const Size& size) {
  sequences = size.sequences, heads = size.heads, head_dim = size.head_dim;
  rings = at.array<KeyRing>(sequences * heads);
  for (int64_t i = 0; i < sequences * heads; ++i) {
    KeyRing ring;
    ring.layout(at, head_dim, size.tokens);
    if (rings.data()) rings[static_cast<size_t>(i)] = ring;  // else the memory is being measured
  }
}

void append_keys(Context& context, const NewKeys& keys, const Rotation& rotation, KeyStore& store) {
  const ZoneTimer timer(context, Zone::kAttentionForward);
  if (keys.count == 0) return;
  const int64_t floats = kPanel * padded_dim(store.head_dim);
  const std::span<float> rows = context.scratch(context.threads() * floats);
  context.tasks(static_cast<int64_t>(keys.position.size()) * store.heads,
                [&](int64_t i, int thread) { append_head(keys, rotation, store, i, rows.data() + thread * floats); });
}

}  // namespace longshot
