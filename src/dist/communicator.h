// Processes that share one piece of work: this one alone, or the ranks that mpirun started. mpi.cc is the only file that
// knows MPI; everything here is made of messages between two ranks.
//
// Nothing waits for ever: a rank that another has not heard from for `patience()` seconds is taken for dead.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/watch.h"

namespace longshot {

// Messages under way between this rank and others. Memory handed over belongs to them until they are done.
class Transfers {
 public:
  virtual ~Transfers() = default;
  // Messages of one pair of ranks and one tag arrive in the order they were sent. Tags: kFirstTag .. 32000.
  static constexpr int kFirstTag = 16;  // those below are the communicator's own
  virtual void send(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual void receive(int from, int tag, std::span<std::byte> bytes) = 0;
  // Moves what is under way, without waiting. True once nothing is.
  virtual bool done() = 0;
  // Whether the messages with this rank are done.
  virtual bool done_with(int rank) const = 0;
  // How many have come to an end since this was made.
  virtual int64_t ended() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host(int rank) const = 0;
  virtual std::unique_ptr<Transfers> transfers() = 0;
  // While on, what is under way moves on even while this rank computes. Otherwise some of it moves whenever it is asked for.
  virtual void keep_moving(bool on) { (void)on; }
  // Ends all ranks at once, this one included.
  virtual void abort(int code) = 0;

  bool is_root() const { return rank() == 0; }
  bool is_alone() const { return size() == 1; }
  std::string name(int rank) const { return fmt::format("rank {} ({})", rank, host(rank)); }
  double patience() const { return patience_; }
  void set_patience(double seconds) { patience_ = seconds; }

  // Until nothing of `transfers` is under way. Error names the ranks that are not heard from.
  void wait(Transfers& transfers) const;
  // The rest are calls that every rank makes, in the same order.
  void barrier();
  void broadcast(std::span<std::byte> bytes);  // from rank 0
  std::string broadcast(std::string text);
  // One text of each rank, in their order, on all of them.
  std::vector<std::string> gather(const std::string& text) { return gather(text, kGather); }
  // One text from a rank to another, which receives it. Several of one sender arrive in their order.
  void send_text(int to, const std::string& text);
  std::string receive_text(int from);
  // Whether every rank ends, and with this same text. Waits no longer than `seconds`; not at all after abandon().
  bool all_end_with(const std::string& text, double seconds);
  // f() on rank 0 alone, however long it takes. What it throws there, Stopped or another Error, is thrown on every rank.
  void on_root(const std::function<void()>& f);
  // f() on every rank, however long each takes. What it throws on one is thrown on all, an Error before Stopped: with the
  // rank's name where not all say the same.
  void on_each(const std::function<void()>& f);
  // Messages are under way whose memory is given up: nothing may be moved any more.
  void abandon() { abandoned_ = true; }
  // Error: nothing was heard from these ranks for so long.
  [[noreturn]] void fail_silent(const std::vector<int>& ranks, double seconds) const;

 private:
  friend class Heartbeat;
  enum Tag { kBarrier, kBroadcast, kGather, kText = kGather + 2, kEnd = kText + 2, kBeat = kEnd + 2, kTags };
  std::vector<std::string> gather(const std::string& text, Tag tag);  // takes two tags
  void broadcast_part(std::span<std::byte> bytes);
  double patience_ = 300;
  std::atomic<bool> abandoned_ = false;
};

// How many processes mpirun, or srun, says it has started; nothing where none did.
struct Launch {
  int rank = 0, size = 1;
  std::string by;  // "mpirun", "srun"
};
std::optional<Launch> launch();

// This process alone, whoever started it.
std::unique_ptr<Communicator> alone();
// The ranks as they were started. Error where there are several and they cannot find each other.
std::unique_ptr<Communicator> all_ranks();
// In mpi.cc, or without_mpi.cc.
std::unique_ptr<Communicator> mpi_ranks(const Launch& launch);
bool has_mpi();

// What must be the same on all ranks, by name. Error names the first difference and whose it is.
using Facts = std::vector<std::pair<std::string, std::string>>;
void require_agreement(Communicator& world, const Facts& facts);
// The same program, told the same but for where its text lies and how many threads it has; and these facts.
void require_same_work(Communicator& world, const Options& options, const Facts& facts);

// Threads for each rank where nothing else is said: the cores it may run on, shared with the other ranks of its host
// that may run on them too.
int threads_of_rank(Communicator& world);

}  // namespace longshot
