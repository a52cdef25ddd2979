// Ranks that work apart tell each other now and then that they are still there, each on a thread of its own: who waits for
// another knows that it is alive, however long its work takes. Nothing else is said between them meanwhile.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/communicator.h"

namespace longshot {

class Heartbeat {
 public:
  // All ranks make one at the same place.
  explicit Heartbeat(Communicator& world);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Error names the ranks that have been silent for longer than patience().
  void check();
  // This rank's work is done. Returns when that of all is; Error as from check().
  void meet();

 private:
  struct Other {
    int rank = 0;
    std::unique_ptr<Transfers> in;
    std::byte word{};
    double heard = 0;
    bool ended = false;
  };
  void beat();
  void listen();
  void say(std::byte word);
  void require_life() const;
  void stop();

  Communicator& world_;
  std::vector<Other> others_;
  std::unique_ptr<Transfers> out_;
  std::byte word_{};  // on its way
  std::mutex mutex_;  // of all above
  std::condition_variable ending_;
  bool ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace longshot
