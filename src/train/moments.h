// The moments of an optimizer that is shared out, on their way to rank 0, which saves them, and back.
#pragma once
#include "dist/communicator.h"
#include "train/optimizer.h"

namespace longshot {

class SharedMoments {
 public:
  SharedMoments(Communicator& world, const Parameters& parameters, const Shards& shards, Optimizer& optimizer)
      : world_(world), parameters_(parameters), shards_(shards), optimizer_(optimizer) {}

  // Rank 0: what a checkpoint keeps, collected while it is written. The other ranks call send() meanwhile.
  std::vector<BlockInParts> collected();
  void send();
  // All ranks, while rank 0 reads them from the checkpoint: f(tensor, numbers) there, for each block and tensor.
  void scatter(const fs::path& checkpoint, const Transformer& model);

 private:
  // f(part of the tensor, numbers from its begin) for every part that a rank owns.
  template <class F>
  void for_parts(const Tensor& tensor, int rank, F&& f) const;
  std::span<float> own(std::span<float> block, FloatRange range) const;

  Communicator& world_;
  const Parameters& parameters_;
  const Shards& shards_;
  Optimizer& optimizer_;
  std::vector<float> room_;  // of a tensor
};

}  // namespace longshot
