// Ranks that are threads of one process: what is made of messages alone can be tested without mpirun.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "dist/communicator.h"

namespace longshot {

class Mailbox {
 public:
  using Key = std::tuple<int, int, int>;  // from, to, tag
  void put(const Key& key, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    letters_[key].emplace_back(bytes.begin(), bytes.end());
  }
  bool take(const Key& key, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    auto& waiting = letters_[key];
    if (waiting.empty()) return false;
    require(waiting.front().size() == bytes.size(), "tag {}: {} bytes were sent where {} are expected",
            std::get<2>(key), waiting.front().size(), bytes.size());
    std::copy(waiting.front().begin(), waiting.front().end(), bytes.begin());
    waiting.pop_front();
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::deque<std::vector<std::byte>>> letters_;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Mailbox& mailbox, int rank, int size) : mailbox_(mailbox), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return "thread-" + std::to_string(rank); }
  void abort(int code) override { std::_Exit(code); }
  int64_t sent() const { return sent_; }        // bytes
  int64_t largest() const { return largest_; }  // bytes of a message sent
  void keep_moving(bool on) override { moving_ = on; }
  bool is_moving() const { return moving_; }

  std::unique_ptr<Transfers> transfers() override { return std::make_unique<Letters>(*this); }

 private:
  class Letters : public Transfers {
   public:
    explicit Letters(ThreadRank& own) : own_(own) {}
    Letters(const Letters&) = delete;
    Letters& operator=(const Letters&) = delete;
    ~Letters() override {
      if (!open_.empty()) own_.abandon();
    }
    void send(int to, int tag, std::span<const std::byte> bytes) override {
      own_.mailbox_.put({own_.rank_, to, tag}, bytes);
      own_.sent_ += std::ssize(bytes);
      own_.largest_ = std::max<int64_t>(own_.largest_, std::ssize(bytes));
      ++ended_;
    }
    void receive(int from, int tag, std::span<std::byte> bytes) override { open_.push_back({from, tag, bytes}); }
    // The earlier of two with one sender and tag takes the earlier letter.
    bool done() override {
      std::vector<Open> left;
      std::map<std::pair<int, int>, bool> blocked;
      for (const Open& o : open_) {
        bool& waits = blocked[{o.from, o.tag}];
        if (!waits && own_.mailbox_.take({o.from, own_.rank_, o.tag}, o.bytes)) {
          ++ended_;
        } else {
          waits = true;
          left.push_back(o);
        }
      }
      open_ = std::move(left);
      return open_.empty();
    }
    bool done_with(int rank) const override {
      return std::ranges::none_of(open_, [&](const Open& o) { return o.from == rank; });
    }
    int64_t ended() const override { return ended_; }

   private:
    struct Open {
      int from, tag;
      std::span<std::byte> bytes;
    };
    ThreadRank& own_;
    std::vector<Open> open_;
    int64_t ended_ = 0;
  };

  Mailbox& mailbox_;
  int rank_, size_;
  std::atomic<int64_t> sent_ = 0, largest_ = 0;
  std::atomic<bool> moving_ = false;
};

// f(rank) on every rank, each on a thread of its own. Returns what each threw, "" where nothing.
inline std::vector<std::string> on_ranks(int size, const std::function<void(Communicator&)>& f) {
  Mailbox mailbox;
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadRank rank(mailbox, r, size);
      rank.set_patience(60);
      try {
        f(rank);
      } catch (const Error& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace longshot
