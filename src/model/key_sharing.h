// One sequence in stretches, each at a process of its own: what a layer's attention asks of whoever moves keys between them.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/attention.h"

namespace longshot {

class KeySharing {
 public:
  virtual ~KeySharing() = default;

  // One layer over the tokens of this process's stretch, in so many passes.
  struct Layer {
    KeyStore& store;
    int64_t heads = 0;  // of queries
    int64_t passes = 0;
    std::function<void(int64_t pass)> store_keys;
    // The rest of the layer, once all keys are stored. Returns what attention visited, [heads, query tiles] or nothing; where
    // it lacked keys nothing has been done.
    std::function<std::span<const VisitedTiles>(int64_t pass)> attend;
  };
  // Makes the passes. All processes call it, as often as the model has layers. Stopped, where one of them was stopped.
  virtual void run(const Layer& layer) = 0;
};

}  // namespace longshot
