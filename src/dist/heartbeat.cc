#include "dist/heartbeat.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace longshot {
namespace {

constexpr std::byte kAlive{1}, kEnded{2};
constexpr auto kPause = std::chrono::microseconds(50);

// Several beats within the patience of the others.
std::chrono::duration<double> interval(const Communicator& world) {
  return std::chrono::duration<double>(std::clamp(world.patience() / 8, 0.01, 5.0));
}

}  // namespace

Heartbeat::Heartbeat(Communicator& world) : world_(world) {
  if (world.is_alone()) return;
  others_.reserve(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    if (r == world.rank()) continue;
    Other& other = others_.emplace_back();
    other.rank = r, other.heard = seconds_now(), other.in = world.transfers();
    other.in->receive(r, Communicator::kBeat, std::span(&other.word, 1));
  }
  out_ = world.transfers();
  thread_ = std::thread([this] { beat(); });
}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

void Heartbeat::beat() {
  std::unique_lock lock(mutex_);
  try {
    while (!ends_) {
      listen();
      if (out_->done()) say(kAlive);
      ending_.wait_for(lock, interval(world_), [this] { return ends_; });
    }
  } catch (const Error&) {
    error_ = std::current_exception();
  }
}

void Heartbeat::say(std::byte word) {
  word_ = word;
  for (const Other& other : others_) out_->send(other.rank, Communicator::kBeat, std::span(&word_, 1));
}

void Heartbeat::listen() {
  for (Other& other : others_) {
    while (!other.ended && other.in->done()) {
      other.heard = seconds_now();
      other.ended = other.word == kEnded;
      if (!other.ended) other.in->receive(other.rank, Communicator::kBeat, std::span(&other.word, 1));
    }
  }
}

void Heartbeat::require_life() const {
  if (error_) std::rethrow_exception(error_);
  std::vector<int> silent;
  double longest = 0;
  for (const Other& other : others_) {
    const double seconds = seconds_now() - other.heard;
    if (other.ended || seconds <= world_.patience()) continue;
    silent.push_back(other.rank);
    longest = std::max(longest, seconds);
  }
  if (!silent.empty()) world_.fail_silent(silent, longest);
}

void Heartbeat::check() {
  const std::lock_guard lock(mutex_);
  require_life();
}

void Heartbeat::meet() {
  if (world_.is_alone()) return;
  stop();
  bool said = false;
  while (true) {
    listen();
    const bool sent = out_->done();
    if (sent && !said) {
      say(kEnded);
      said = true;
    } else if (sent && std::ranges::all_of(others_, &Other::ended)) {
      return;
    }
    require_life();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace longshot
