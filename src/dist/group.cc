#include "dist/group.h"

namespace longshot {
namespace {

constexpr int kTags = 16000;  // of the world's own messages: a group's lie behind them

class GroupTransfers : public Transfers {
 public:
  GroupTransfers(std::unique_ptr<Transfers> world, int first) : world_(std::move(world)), first_(first) {}
  void send(int to, int tag, std::span<const std::byte> bytes) override {
    world_->send(first_ + to, moved(tag), bytes);
  }
  void receive(int from, int tag, std::span<std::byte> bytes) override {
    world_->receive(first_ + from, moved(tag), bytes);
  }
  bool done() override { return world_->done(); }
  bool done_with(int rank) const override { return world_->done_with(first_ + rank); }
  int64_t ended() const override { return world_->ended(); }

 private:
  static int moved(int tag) {
    require(tag < kTags, "a group has no tag {}", tag);
    return kTags + tag;
  }
  std::unique_ptr<Transfers> world_;
  int first_;  // rank in the world of the group's rank 0
};

class Group : public Communicator {
 public:
  Group(Communicator& world, int size) : world_(world), first_(world.rank() / size * size), size_(size) {
    set_patience(world.patience());
  }
  int rank() const override { return world_.rank() - first_; }
  int size() const override { return size_; }
  std::string host(int rank) const override {
    return fmt::format("{}, rank {} of all", world_.host(first_ + rank), first_ + rank);
  }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<GroupTransfers>(world_.transfers(), first_);
  }
  void keep_moving(bool on) override { world_.keep_moving(on); }
  void abort(int code) override { world_.abort(code); }

 private:
  Communicator& world_;
  int first_, size_;
};

}  // namespace

void require_groups(const Communicator& world, int size, std::string_view option) {
  require_usage(size >= 1 && world.size() % size == 0, "{} {} must divide the number of ranks, which is {}", option,
                size, world.size());
  require_usage(
      size == 1 || threads_may_send(),
      "{} {} needs an MPI that several threads may call at once (MPI_THREAD_MULTIPLE), which this one does not allow",
      option, size);
}

std::unique_ptr<Communicator> group_of(Communicator& world, int size) {
  require_groups(world, size);
  if (size == 1) return alone();
  return std::make_unique<Group>(world, size);
}

}  // namespace longshot
