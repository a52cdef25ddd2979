#include "dist/communicator.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "dist/heartbeat.h"

namespace longshot {
namespace {

constexpr double kSpin = 0.002;  // seconds of looking without a pause: neighbours answer sooner
constexpr auto kPause = std::chrono::microseconds(50);
constexpr size_t kBroadcastPart = size_t{64} << 20;  // bytes: who waits hears of each

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// What f() threw, as text: "" where nothing.
constexpr char kFailed = 'f', kUsage = 'u', kStopped = 's';
std::string outcome_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Stopped&) {
    return {kStopped};
  } catch (const Error& e) {
    return (e.kind() == Error::Kind::kUsage ? kUsage : kFailed) + std::string(e.what());
  }
  return "";
}

bool is_error(const std::string& outcome) { return !outcome.empty() && outcome[0] != kStopped; }

void throw_outcome(const std::string& outcome, const std::string& whose = "") {
  if (outcome.empty()) return;
  if (outcome[0] == kStopped) throw Stopped();
  throw Error(whose + outcome.substr(1), outcome[0] == kUsage ? Error::Kind::kUsage : Error::Kind::kFailed);
}

// Of an environment variable; 0 where there is none.
int number_of(const char* text) { return text ? static_cast<int>(std::strtol(text, nullptr, 10)) : 0; }

class Alone : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string host(int) const override { return "this host"; }
  std::unique_ptr<Transfers> transfers() override { fail("one process has nobody to send to"); }
  void abort(int code) override { std::_Exit(code); }
};

}  // namespace

std::unique_ptr<Communicator> alone() { return std::make_unique<Alone>(); }

std::unique_ptr<Communicator> all_ranks() {
  const std::optional<Launch> started = launch();
  return started && started->size > 1 ? mpi_ranks(*started) : alone();
}

std::optional<Launch> launch() {
  struct Starter {
    const char *size, *rank, *name;
  };
  constexpr Starter kStarters[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
                                   {"PMI_SIZE", "PMI_RANK", "mpirun"},
                                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"}};
  for (const Starter& s : kStarters) {
    const char *size = std::getenv(s.size), *rank = std::getenv(s.rank);
    if (number_of(size) > 0) return Launch{number_of(rank), number_of(size), s.name};
  }
  return std::nullopt;
}

void Communicator::wait(Transfers& transfers) const {
  int64_t ended = transfers.ended();
  double heard = seconds_now();
  while (!transfers.done()) {
    const double silent = seconds_now() - heard;
    if (transfers.ended() > ended) {
      ended = transfers.ended(), heard = seconds_now();
    } else if (silent > patience_) {
      std::vector<int> silent_ranks;
      for (int r = 0; r < size(); ++r) {
        if (!transfers.done_with(r)) silent_ranks.push_back(r);
      }
      fail_silent(silent_ranks, silent);
    } else if (silent > kSpin) {
      std::this_thread::sleep_for(kPause);
    } else {
      std::this_thread::yield();
    }
  }
}

void Communicator::fail_silent(const std::vector<int>& ranks, double seconds) const {
  std::string names;
  for (const int r : ranks) names += (names.empty() ? "" : ", ") + name(r);
  fail(
      "{} has heard nothing from {} for {:.0f} seconds (--rank-timeout). Is it hung, or its network down, or does it "
      "wait for another that is?",
      name(rank()), names, seconds);
}

// In round k every rank hears from the one 2^k before it: after the last, from all.
void Communicator::barrier() {
  for (int apart = 1; apart < size(); apart *= 2) {
    std::byte out{}, in{};
    const auto t = transfers();
    t->receive((rank() - apart + size()) % size(), kBarrier, bytes_of(in));
    t->send((rank() + apart) % size(), kBarrier, bytes_of(out));
    wait(*t);
  }
}

void Communicator::broadcast(std::span<std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kBroadcastPart)
    broadcast_part(bytes.subspan(at, std::min(kBroadcastPart, bytes.size() - at)));
}

// Ranks below 2^k have it after round k and hand it on to those 2^k above them.
void Communicator::broadcast_part(std::span<std::byte> bytes) {
  for (int have = 1; have < size(); have *= 2) {
    if (rank() >= 2 * have) continue;
    const auto t = transfers();
    if (rank() >= have) t->receive(rank() - have, kBroadcast, bytes);
    if (rank() < have && rank() + have < size()) t->send(rank() + have, kBroadcast, bytes);
    wait(*t);
  }
}

std::string Communicator::broadcast(std::string text) {
  uint64_t size = text.size();
  broadcast(bytes_of(size));
  text.resize(size);
  broadcast(std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::string> Communicator::gather(const std::string& text, Tag tag) {
  std::vector<uint64_t> sizes(static_cast<size_t>(size()), text.size());
  std::vector<std::string> texts(static_cast<size_t>(size()), text);
  const auto exchange = [&](int of, std::span<const std::byte> own, auto&& place) {
    if (is_alone()) return;
    const auto t = transfers();
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) t->receive(r, of, place(static_cast<size_t>(r)));
    }
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) t->send(r, of, own);
    }
    wait(*t);
  };
  const uint64_t own_size = text.size();
  exchange(tag, std::as_bytes(std::span(&own_size, 1)), [&](size_t r) { return bytes_of(sizes[r]); });
  for (size_t r = 0; r < texts.size(); ++r) texts[r].resize(sizes[r]);
  exchange(tag + 1, std::as_bytes(std::span(text)),
           [&](size_t r) { return std::as_writable_bytes(std::span(texts[r])); });
  return texts;
}

bool Communicator::all_end_with(const std::string& text, double seconds) {
  static_assert(kTags <= Transfers::kFirstTag);
  if (abandoned_) return false;
  const double before = std::exchange(patience_, seconds);
  bool same = false;
  try {
    same = std::ranges::all_of(gather(text, kEnd), [&](const std::string& other) { return other == text; });
  } catch (const Error&) {  // the others go on, or are gone
  }
  patience_ = before;
  return same;
}

void Communicator::on_root(const std::function<void()>& f) {
  if (is_alone()) return f();
  std::string outcome;
  Heartbeat heartbeat(*this);
  if (is_root()) outcome = outcome_of(f);
  heartbeat.meet();
  throw_outcome(broadcast(std::move(outcome)));
}

void Communicator::on_each(const std::function<void()>& f) {
  if (is_alone()) return f();
  Heartbeat heartbeat(*this);
  const std::string own = outcome_of(f);
  heartbeat.meet();
  const std::vector<std::string> all = gather(own);
  if (std::ranges::count(all, own) == size()) return throw_outcome(own);
  const auto failed = std::ranges::find_if(all, is_error);
  if (failed == all.end()) throw Stopped();
  throw_outcome(*failed, name(static_cast<int>(failed - all.begin())) + ": ");
}

void Communicator::send_text(int to, const std::string& text) {
  const uint64_t size = text.size();
  const auto t = transfers();
  t->send(to, kText, std::as_bytes(std::span(&size, 1)));
  t->send(to, kText + 1, std::as_bytes(std::span(text)));
  wait(*t);
}

std::string Communicator::receive_text(int from) {
  uint64_t size = 0;
  const auto receive = [&](int tag, std::span<std::byte> bytes) {
    const auto t = transfers();
    t->receive(from, tag, bytes);
    wait(*t);
  };
  receive(kText, bytes_of(size));
  std::string text(size, '\0');
  receive(kText + 1, std::as_writable_bytes(std::span(text)));
  return text;
}

namespace {

std::string packed(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\0' + value + '\0';
  return text;
}

Facts unpacked(const std::string& text) {
  Facts facts;
  for (size_t at = 0; at < text.size();) {
    const auto take = [&] {
      const size_t end = text.find('\0', at);
      std::string word = text.substr(at, end - at);
      at = end + 1;
      return word;
    };
    std::string name = take(), value = take();
    facts.emplace_back(std::move(name), std::move(value));
  }
  return facts;
}

}  // namespace

void require_agreement(Communicator& world, const Facts& facts) {
  const std::vector<std::string> all = world.gather(packed(facts));
  const Facts root = unpacked(all[0]);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const Facts theirs = unpacked(all[r]);
    for (size_t i = 0; i < std::max(root.size(), theirs.size()); ++i) {
      const auto [name, value] = i < root.size() ? root[i] : std::pair<std::string, std::string>{"", "nothing"};
      const auto [other, there] = i < theirs.size() ? theirs[i] : std::pair<std::string, std::string>{"", "nothing"};
      if (name == other && value == there) continue;
      const std::string what = name == other ? name : name + " / " + other;
      fail_usage("the ranks disagree: {} is {} on {}, but {} on {}", what, value, world.name(0), there,
                 world.name(static_cast<int>(r)));
    }
  }
}

void require_same_work(Communicator& world, const Options& options, const Facts& facts) {
  if (world.is_alone()) return;
  Facts all{{"the program's checksum", checksum(MappedFile("/proc/self/exe"))}};
  for (const Option& o : options.all()) {
    if (o.get && o.name != "data" && o.name != "threads") all.emplace_back("--" + o.name, o.get());
    if (!o.tables) continue;
    for (const OptionTable& table : *o.tables) {
      for (const auto& [name, value] : table.values)
        all.emplace_back(fmt::format("{} of [{}.{}]", name, o.name, table.name), value);
    }
  }
  all.insert(all.end(), facts.begin(), facts.end());
  require_agreement(world, all);
}

int threads_of_rank(Communicator& world) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (::sched_getaffinity(0, sizeof own, &own) != 0) return 1;
  const std::string host = world.host(world.rank());
  const std::vector<std::string> all = world.gather(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  int sharing = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    cpu_set_t theirs, both;
    std::memcpy(&theirs, all[r].data(), sizeof theirs);
    CPU_AND(&both, &own, &theirs);
    if (world.host(static_cast<int>(r)) == host && CPU_COUNT(&both) > 0) ++sharing;
  }
  return std::max(CPU_COUNT(&own) / std::max(sharing, 1), 1);
}

}  // namespace longshot
