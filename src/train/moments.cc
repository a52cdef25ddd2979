#include "train/moments.h"

#include <algorithm>

namespace longshot {
namespace {

constexpr int kMoments = 8000;  // tag

}  // namespace

template <class F>
void SharedMoments::for_parts(const Tensor& tensor, int rank, F&& f) const {
  for (const Bucket& b : shards_.of_values()) {
    const FloatRange r = b.of(rank);
    const FloatRange both{std::max(r.begin, tensor.offset), std::min(r.end, tensor.offset + tensor.size)};
    if (both.count() > 0) f(both);
  }
}

// Where this rank keeps its part of a block.
std::span<float> SharedMoments::own(std::span<float> block, FloatRange range) const {
  int64_t in_front = 0;
  for (const FloatRange& r : optimizer_.own()) {
    if (range.begin < r.end) return part(block, in_front + range.begin - r.begin, range.count());
    in_front += r.count();
  }
  fail("a part that this rank does not own");
}

std::vector<BlockInParts> SharedMoments::collected() {
  std::vector<BlockInParts> blocks;
  for (const NamedBlock& b : optimizer_.blocks()) {
    blocks.push_back({b.prefix, [this, numbers = b.numbers](const Tensor& t) -> std::span<const float> {
                        room_.resize(static_cast<size_t>(t.size));
                        const auto transfers = world_.transfers();
                        for (int rank = 0; rank < world_.size(); ++rank) {
                          for_parts(t, rank, [&](FloatRange r) {
                            const std::span<float> to = part<float>(room_, r.begin - t.offset, r.count());
                            if (rank == world_.rank()) {
                              std::ranges::copy(own(numbers, r), to.begin());
                            } else {
                              transfers->receive(rank, kMoments, std::as_writable_bytes(to));
                            }
                          });
                        }
                        world_.wait(*transfers);
                        return room_;
                      }});
  }
  return blocks;
}

void SharedMoments::send() {
  for (const NamedBlock& b : optimizer_.blocks()) {
    for (const Tensor& t : parameters_.tensors()) {
      const auto transfers = world_.transfers();
      for_parts(t, world_.rank(),
                [&](FloatRange r) { transfers->send(0, kMoments, std::as_bytes(own(b.numbers, r))); });
      world_.wait(*transfers);
    }
  }
}

void SharedMoments::scatter(const fs::path& checkpoint, const Transformer& model) {
  for (const NamedBlock& b : optimizer_.blocks()) {
    if (!world_.is_root()) {
      const auto transfers = world_.transfers();
      for (const Tensor& t : parameters_.tensors()) {
        for_parts(t, world_.rank(),
                  [&](FloatRange r) { transfers->receive(0, kMoments, std::as_writable_bytes(own(b.numbers, r))); });
      }
      world_.wait(*transfers);
      continue;
    }
    load_block(checkpoint, model, b.prefix, [&](const Tensor& t, std::span<const float> numbers) {
      const auto transfers = world_.transfers();
      for (int rank = 0; rank < world_.size(); ++rank) {
        for_parts(t, rank, [&](FloatRange r) {
          const std::span<const float> from = part(numbers, r.begin - t.offset, r.count());
          if (rank == world_.rank()) {
            std::ranges::copy(from, own(b.numbers, r).begin());
          } else {
            transfers->send(rank, kMoments, std::as_bytes(from));
          }
        });
      }
      world_.wait(*transfers);
    });
  }
}

}  // namespace longshot
