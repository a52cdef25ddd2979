// Gradients and parameters on their way between ranks. Each bucket of gradients is sent as soon as it is complete; whoever
// owns a piece of it adds up what all ranks have there, by the tree of ranks, and after the update sends the piece of the
// parameters to the others.
#pragma once
#include <memory>
#include <vector>

#include "base/context.h"
#include "base/workspace.h"
#include "dist/communicator.h"
#include "train/shards.h"

namespace longshot {

class ShardExchange {
 public:
  ShardExchange(Context& context, Communicator& world, Parameters& parameters, const Shards& shards);

  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  // Bytes it takes beside the parameters.
  static size_t predict_bytes(const Shards& shards);

  // The last pass of a step: gradients are complete from `offset` of the parameters' present block on. Sends what that
  // makes possible and moves what is under way.
  void gradients_complete(std::span<float> block, int64_t offset);
  // Until the sums over all ranks are in this rank's pieces; the rest of the block is 0.
  void finish_gradients();
  // Updated pieces go to all ranks, from the front of the block on, while the next pass begins.
  void begin_values();
  // Until the parameters in front of `end` are those of all ranks.
  void await_values(int64_t end);
  // Until all are, and what this rank sent may change.
  void finish_values();
  // Each rank's numbers of its own units, to all.
  void share_units(std::span<double> units);
  // The same few numbers of every rank, by rank.
  std::span<const double> share(std::span<const double> own);

 private:
  struct Slot {
    std::unique_ptr<Transfers> transfers;
    std::span<float> room;  // [ranks - 1] pieces of the bucket
    const Bucket* bucket = nullptr;
  };
  void rest();
  void move();
  void move_values();
  void start_values(const Bucket& bucket, Transfers& transfers);
  void start(Slot& slot, const Bucket& bucket);
  void add_up(Slot& slot);
  std::span<float> part_of(Slot& slot, int rank);

  Context& context_;
  Communicator& world_;
  Parameters& parameters_;
  const Shards& shards_;
  std::vector<RowGroup> tree_;
  std::vector<Slot> slots_;
  std::unique_ptr<Transfers> others_;
  std::vector<double> unit_room_, shared_;
  Workspace memory_;
  std::span<float> block_;
  int64_t complete_ = 0;                                 // from there on in the block
  size_t next_ = 0;                                      // bucket to start
  std::vector<std::unique_ptr<Transfers>> value_slots_;  // of bucket k: k modulo their number
  size_t next_value_ = 0, arrived_ = 0;                  // buckets of parameters
  bool moving_ = false;
};

}  // namespace longshot
