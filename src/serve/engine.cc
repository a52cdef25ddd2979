#include "serve/engine.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace longshot {
namespace {

constexpr double kShareSeconds = 0.2;               // between looks at who else shares the cores
constexpr std::chrono::milliseconds kIdleWait{50};  // between looks at whether to stop

}  // namespace

void EngineConfig::fields(Options& o) {
  o.group("limits");
  o.add("slots", slots, "texts made at once; others wait");
  o.add("max-length", length, "tokens of a text, its prompt among them; memory for as many in every slot is taken");
  o.add("max-queue", queue, "texts that may wait; more are refused");
  o.add("max-seconds", seconds, "for a request, waiting included");
}

void EngineConfig::validate() const {
  require_usage(slots > 0 && slots <= 1024, "--slots: {} is not between 1 and 1024", slots);
  require_usage(length > 1 && length <= int64_t{1} << 30, "--max-length: {} is not between 2 and {}", length,
                int64_t{1} << 30);
  require_usage(queue >= 0 && queue <= 1'000'000, "--max-queue: {} is not between 0 and 1000000", queue);
  require_usage(seconds > 0 && seconds <= 1e6, "--max-seconds: {} is not between 0 and 1000000", seconds);
}

Engine::Engine(Context& context, LoadedModel& loaded, const EngineConfig& config, ServeMetrics& metrics)
    : context_(context),
      loaded_(loaded),
      config_(config),
      length_(std::min(config.length, loaded.model->position().max_length())),
      metrics_(metrics),
      scheduler_(context, loaded, {.slots = config.slots, .capacity = length_, .most_prompt = length_}),
      bytes_(scheduler_.bytes()) {
  config.validate();
}

bool Engine::submit(std::vector<std::unique_ptr<Continuation>> texts) {
  for (const auto& text : texts) {
    require_usage(text->reach() <= length_,
                  "{} tokens of prompt (the start among them) and {} to be made are {}; this server takes {} "
                  "(--max-length)",
                  text->inputs().size(), text->request().config.max_tokens, text->reach(), length_);
  }
  {
    const std::lock_guard lock(mutex_);
    const auto all = scheduled_ + static_cast<int64_t>(submitted_.size() + texts.size());
    if (ending_ || all > config_.slots + config_.queue) return false;
    std::ranges::move(texts, std::back_inserter(submitted_));
  }
  came_.notify_one();
  return true;
}

void Engine::take_submitted() {
  const std::lock_guard lock(mutex_);
  for (auto& text : submitted_) scheduler_.add(std::move(text));
  submitted_.clear();
  scheduled_ = scheduler_.running() + scheduler_.waiting();
  running_ = scheduler_.running(), waiting_ = scheduler_.waiting();
}

void Engine::run(const std::function<bool()>& should_stop) {
  double shared = 0;
  while (!should_stop()) {
    take_submitted();
    const double start = seconds_now();
    if (start - shared > kShareSeconds) context_.update_share(), shared = start;
    if (running_ + waiting_ > 0) {
      scheduler_.step();
      metrics_.count_step(seconds_now() - start);
    } else {
      std::unique_lock lock(mutex_);
      came_.wait_for(lock, kIdleWait, [this] { return !submitted_.empty(); });
    }
  }
  ending_ = true;
  take_submitted();
  scheduler_.step();  // every text asks whether to stop, and ends
  take_submitted();
}

}  // namespace longshot
