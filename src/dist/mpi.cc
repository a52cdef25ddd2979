// The one file that knows MPI.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "dist/communicator.h"
#include "dist/group.h"

namespace longshot {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // of a message: who waits hears of each
constexpr int kNoTag = 32767;                    // of no message
constexpr unsigned kAbortSeconds = 10;  // then a rank ends by itself: over a cut link the others cannot be told

void check(int code, const char* what, const std::string& who) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("{}: {} failed: {}", who, what, std::string(text, static_cast<size_t>(length)));
}

class MpiTransfers : public Transfers {
 public:
  explicit MpiTransfers(Communicator& world)
      : world_(world), who_(world.name(world.rank())), open_(static_cast<size_t>(world.size()), 0) {}
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;
  // Where something is still under way, so is an Error, and the process ends.
  ~MpiTransfers() override {
    if (!requests_.empty()) world_.abandon();
  }

  void send(int to, int tag, std::span<const std::byte> bytes) override {
    in_pieces(bytes, to, [&](const std::byte* data, int count, MPI_Request* request) {
      check(MPI_Isend(data, count, MPI_BYTE, to, tag, MPI_COMM_WORLD, request), "sending", who_);
    });
  }
  void receive(int from, int tag, std::span<std::byte> bytes) override {
    in_pieces(bytes, from, [&](std::byte* data, int count, MPI_Request* request) {
      check(MPI_Irecv(data, count, MPI_BYTE, from, tag, MPI_COMM_WORLD, request), "receiving", who_);
    });
  }

  bool done() override {
    if (requests_.empty()) return true;
    int count = 0;
    indices_.resize(requests_.size());
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                       MPI_STATUSES_IGNORE),
          "a transfer", who_);
    if (count == MPI_UNDEFINED) count = 0;
    for (int i = 0; i < count; ++i)
      --open_[static_cast<size_t>(peers_[static_cast<size_t>(indices_[static_cast<size_t>(i)])])];
    ended_ += count;
    if (std::ranges::any_of(requests_, [](MPI_Request r) { return r != MPI_REQUEST_NULL; })) return false;
    requests_.clear();
    peers_.clear();
    return true;
  }
  bool done_with(int rank) const override { return open_[static_cast<size_t>(rank)] == 0; }
  int64_t ended() const override { return ended_; }

 private:
  template <class T, class F>
  void in_pieces(std::span<T> bytes, int peer, F&& start) {
    size_t at = 0;
    do {
      const size_t count = std::min(kMostBytes, bytes.size() - at);
      requests_.push_back(MPI_REQUEST_NULL);
      peers_.push_back(peer);
      ++open_[static_cast<size_t>(peer)];
      start(bytes.data() + at, static_cast<int>(count), &requests_.back());
      at += count;
    } while (at < bytes.size());
  }

  Communicator& world_;
  std::string who_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_, indices_;
  std::vector<int> open_;  // of each rank
  int64_t ended_ = 0;
};

// MPI moves messages only while it is called. Where they go over a network, computing threads call it too seldom to keep the
// link busy: a thread of its own does, while it is on.
class Mover {
 public:
  Mover() : thread_([this] { run(); }) {}
  ~Mover() {
    set(State::kEnding);
    thread_.join();
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  // Once it is off, no call is under way.
  void set(bool on) { set(on ? State::kOn : State::kOff); }

 private:
  enum class State { kOff, kOn, kEnding };
  static constexpr auto kPause = std::chrono::microseconds(500);
  static constexpr int kCalls = 8;  // one after the other: each moves a few fragments

  void set(State state) {
    {
      const std::lock_guard lock(mutex_);
      state_ = state;
    }
    changed_.notify_one();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (state_ != State::kEnding) {
      if (state_ == State::kOff) {
        changed_.wait(lock);
        continue;
      }
      for (int i = 0, found = 0; i < kCalls; ++i)
        MPI_Iprobe(MPI_ANY_SOURCE, kNoTag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
      lock.unlock();
      std::this_thread::sleep_for(kPause);
      lock.lock();
    }
  }

  State state_ = State::kOff;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

class MpiRanks : public Communicator {
 public:
  explicit MpiRanks(const Launch& launch) {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) fail("MPI did not start");
    require(provided >= MPI_THREAD_SERIALIZED, "this MPI does not let a second thread call it");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    if (size_ != launch.size) {
      MPI_Finalize();
      fail_usage(
          "{} started {} processes, but MPI knows of {}: each would work alone. Start them with the mpirun of the "
          "MPI that this longshot was built with.",
          launch.by, launch.size, size_);
    }
    char own[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(own, &length);
    hosts_.assign(static_cast<size_t>(size_), std::string(own, static_cast<size_t>(length)));
    hosts_ = gather(hosts_[0]);
    const bool one_host = std::ranges::count(hosts_, hosts_[0]) == size_;
    if (!one_host && provided == MPI_THREAD_MULTIPLE) mover_.emplace();
  }
  ~MpiRanks() override {
    mover_.reset();
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  std::unique_ptr<Transfers> transfers() override { return std::make_unique<MpiTransfers>(*this); }
  void keep_moving(bool on) override {
    if (mover_) mover_->set(on);
  }
  void abort(int code) override {
    ::alarm(kAbortSeconds);
    MPI_Abort(MPI_COMM_WORLD, code);
    ::_exit(code);
  }

 private:
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;
  std::optional<Mover> mover_;
};

}  // namespace

bool has_mpi() { return true; }

bool threads_may_send() {
  int begun = 0, provided = MPI_THREAD_MULTIPLE;
  MPI_Initialized(&begun);
  if (begun) MPI_Query_thread(&provided);
  return provided == MPI_THREAD_MULTIPLE;
}

std::unique_ptr<Communicator> mpi_ranks(const Launch& launch) { return std::make_unique<MpiRanks>(launch); }

}  // namespace longshot
