#include "train/exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "kernels/update.h"
#include "train/batch_plan.h"

namespace longshot {
namespace {

constexpr int64_t kSlots = 4;        // buckets under way at once
constexpr int64_t kGrain = 1 << 14;  // least floats of a thread
constexpr int kUnits = Transfers::kFirstTag, kWords = kUnits + 1, kValues = kUnits + 2, kGradients = kUnits + 3;

std::span<std::byte> bytes_of(std::span<float> x) { return std::as_writable_bytes(x); }

std::span<float> in_block(std::span<float> block, FloatRange r) { return part(block, r.begin, r.count()); }

// The others' numbers of a rank's piece.
int64_t room_floats(const Shards& shards) { return (shards.ranks() - 1) * shards.longest_piece(); }

}  // namespace

size_t ShardExchange::predict_bytes(const Shards& shards) {
  return static_cast<size_t>(kSlots * room_floats(shards)) * sizeof(float);
}

ShardExchange::ShardExchange(Context& context, Communicator& world, Parameters& parameters, const Shards& shards)
    : context_(context), world_(world), parameters_(parameters), shards_(shards), tree_(tree_of_ranks(world.size())) {
  slots_.resize(kSlots);
  for (Slot& s : slots_) s.transfers = world.transfers();
  for (int64_t i = 0; i < kSlots; ++i) value_slots_.push_back(world.transfers());
  others_ = world.transfers();
  memory_ = Workspace([&](Layout& at) {
    for (Slot& s : slots_) s.room = at.array<float>(room_floats(shards));
  });
}

ShardExchange::~ShardExchange() { rest(); }

// Nothing is moved behind the caller's back.
void ShardExchange::rest() {
  context_.call_between({});
  world_.keep_moving(false);
}

void ShardExchange::gradients_complete(std::span<float> block, int64_t offset) {
  block_ = block, complete_ = offset;
  world_.keep_moving(true);
  context_.call_between([this] { move(); });
  move();
}

// Buckets go in one order on all ranks; a slot is free when its bucket has been added up.
void ShardExchange::move() {
  if (std::exchange(moving_, true)) return;  // called from between the loops below
  for (Slot& s : slots_) {
    if (s.bucket && s.transfers->done()) add_up(s);
  }
  const std::vector<Bucket>& buckets = shards_.of_gradients();
  for (; next_ < buckets.size() && buckets[next_].begin() >= complete_; ++next_) {
    const auto free = std::ranges::find(slots_, nullptr, &Slot::bucket);
    if (free == slots_.end()) break;
    start(*free, buckets[next_]);
  }
  moving_ = false;
}

std::span<float> ShardExchange::part_of(Slot& slot, int rank) {
  const FloatRange own = slot.bucket->of(world_.rank());
  if (rank == world_.rank()) return in_block(block_, own);
  const int64_t place = rank < world_.rank() ? rank : rank - 1;
  return part(slot.room, place * own.count(), own.count());
}

void ShardExchange::start(Slot& slot, const Bucket& bucket) {
  slot.bucket = &bucket;
  const int tag = kGradients + static_cast<int>(next_ % 1024);
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) slot.transfers->receive(r, tag, bytes_of(part_of(slot, r)));
  }
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) slot.transfers->send(r, tag, bytes_of(in_block(block_, bucket.of(r))));
  }
}

// Own piece = the tree over the ranks' pieces; what was sent is not needed any more.
void ShardExchange::add_up(Slot& slot) {
  const FloatRange own = slot.bucket->of(world_.rank());
  context_.ranges(own.count(), kGrain, [&](int64_t begin, int64_t end) {
    std::array<float*, kMostDepth> sums{};
    const auto leaf = [&](int64_t first, int64_t, int i) {
      sums[static_cast<size_t>(i)] = part_of(slot, static_cast<int>(first)).data() + begin;
    };
    const auto merge = [&](int into, int from) {
      move_floats(sums[static_cast<size_t>(from)], sums[static_cast<size_t>(into)], end - begin);
    };
    sum_by_groups({tree_}, leaf, merge);
    float* to = in_block(block_, own).data() + begin;
    if (sums[0] != to) std::copy_n(sums[0], end - begin, to);
  });
  for (const FloatRange r :
       {FloatRange{slot.bucket->begin(), own.begin}, FloatRange{own.end, slot.bucket->cuts.back()}}) {
    const std::span<float> sent = in_block(block_, r);
    context_.ranges(r.count(), kGrain,
                    [&](int64_t begin, int64_t end) { std::fill(sent.begin() + begin, sent.begin() + end, 0.0f); });
  }
  slot.bucket = nullptr;
}

void ShardExchange::finish_gradients() {
  const auto busy = [this] {
    return next_ < shards_.of_gradients().size() ||
           std::ranges::any_of(slots_, [](const Slot& s) { return s.bucket != nullptr; });
  };
  while (busy()) {
    move();
    // The oldest first: it frees the slot that the next one waits for.
    for (Slot& s : slots_) {
      if (!s.bucket) continue;
      world_.wait(*s.transfers);
      break;
    }
  }
  rest();
  next_ = 0;
}

void ShardExchange::begin_values() {
  next_value_ = arrived_ = 0;
  world_.keep_moving(true);
  context_.call_between([this] { move_values(); });
  move_values();
}

// A slot is free when all of its bucket has been sent and received.
void ShardExchange::move_values() {
  const auto slot = [this](size_t bucket) -> Transfers& { return *value_slots_[bucket % value_slots_.size()]; };
  while (arrived_ < next_value_ && slot(arrived_).done()) ++arrived_;
  const std::vector<Bucket>& buckets = shards_.of_values();
  for (; next_value_ < buckets.size() && next_value_ < arrived_ + value_slots_.size(); ++next_value_)
    start_values(buckets[next_value_], slot(next_value_));
}

void ShardExchange::start_values(const Bucket& bucket, Transfers& transfers) {
  const auto piece = [&](int rank) { return bytes_of(in_block(parameters_.values(), bucket.of(rank))); };
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) transfers.receive(r, kValues, piece(r));
  }
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) transfers.send(r, kValues, piece(world_.rank()));
  }
}

void ShardExchange::await_values(int64_t end) {
  while (arrived_ < next_value_ && shards_.of_values()[arrived_].begin() < end) {
    world_.wait(*value_slots_[arrived_ % value_slots_.size()]);
    move_values();
  }
}

void ShardExchange::finish_values() {
  await_values(parameters_.end());
  rest();
}

std::span<const double> ShardExchange::share(std::span<const double> own) {
  shared_.resize(own.size() * static_cast<size_t>(world_.size()));
  const auto of = [&](int rank) {
    return std::span(shared_).subspan(static_cast<size_t>(rank) * own.size(), own.size());
  };
  std::ranges::copy(own, of(world_.rank()).begin());
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) others_->receive(r, kWords, std::as_writable_bytes(of(r)));
  }
  for (int r = 0; r < world_.size(); ++r) {
    if (r != world_.rank()) others_->send(r, kWords, std::as_bytes(own));
  }
  world_.wait(*others_);
  return shared_;
}

void ShardExchange::share_units(std::span<double> units) {
  std::vector<std::span<double>> rooms;
  const std::vector<NormUnit>& all = shards_.units();
  std::vector<size_t> counts(static_cast<size_t>(world_.size()), 0);
  for (const NormUnit& u : all) ++counts[static_cast<size_t>(u.owner)];
  unit_room_.resize(all.size());
  size_t at = 0;
  for (const size_t count : counts) {
    rooms.push_back(std::span(unit_room_).subspan(at, count));
    at += count;
  }
  const auto own = static_cast<size_t>(world_.rank());
  for (size_t i = 0, next = 0; i < all.size(); ++i) {
    if (all[i].owner == world_.rank()) rooms[own][next++] = units[i];
  }
  for (size_t r = 0; r < rooms.size(); ++r) {
    if (r != own) others_->receive(static_cast<int>(r), kUnits, std::as_writable_bytes(rooms[r]));
  }
  for (size_t r = 0; r < rooms.size(); ++r) {
    if (r != own) others_->send(static_cast<int>(r), kUnits, std::as_bytes(rooms[own]));
  }
  world_.wait(*others_);
  std::vector<size_t> next(rooms.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto owner = static_cast<size_t>(all[i].owner);
    units[i] = rooms[owner][next[owner]++];
  }
}

}  // namespace longshot
