// The model at work for many clients: requests come in on any thread, texts are made on one.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/options.h"
#include "generate/scheduler.h"
#include "serve/metrics.h"

namespace longshot {

struct EngineConfig {
  int64_t slots = 8;      // texts made at once
  int64_t length = 4096;  // tokens of a text, its prompt among them; the cache has room for as many in every slot
  int64_t queue = 64;     // texts that may wait
  double seconds = 600;   // for a request, from its arrival to its end

  void fields(Options& o);
  void validate() const;
};

class Engine {
 public:
  // All memory is taken here.
  Engine(Context& context, LoadedModel& loaded, const EngineConfig& config, ServeMetrics& metrics);

  const LoadedModel& loaded() const { return loaded_; }
  const EngineConfig& config() const { return config_; }
  int64_t length() const { return length_; }  // as configured, or less where the position method ends before
  // True once the end has begun: what is being made is given up.
  bool is_ending() const { return ending_; }

  // Texts that shall be made; all of them are taken, or none where that would be too many.
  bool submit(std::vector<std::unique_ptr<Continuation>> texts);

  // Makes texts on the calling thread until asked to stop.
  void run(const std::function<bool()>& should_stop);

  int64_t running() const { return running_; }
  int64_t waiting() const { return waiting_; }
  size_t bytes() const { return bytes_; }

 private:
  void take_submitted();

  Context& context_;
  const LoadedModel& loaded_;
  EngineConfig config_;
  int64_t length_;
  ServeMetrics& metrics_;
  Scheduler scheduler_;
  size_t bytes_;
  std::atomic<int64_t> running_{0}, waiting_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable came_;
  std::vector<std::unique_ptr<Continuation>> submitted_;
  int64_t scheduled_ = 0;  // texts that the scheduler has
};

}  // namespace longshot
