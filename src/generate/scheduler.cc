#include "generate/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

Inference::Config inference_config(const Scheduler::Config& config) {
  require_usage(config.slots > 0 && config.capacity > 0, "texts need a slot and room for a token");
  const int64_t piece = std::min({kPromptPiece, config.capacity, std::max<int64_t>(config.most_prompt, 1)});
  return {
      .sequences = config.slots, .tokens = piece, .capacity = config.capacity, .rows = std::max(piece, config.slots)};
}

}  // namespace

Scheduler::Scheduler(Context& context, LoadedModel& loaded, Config config)
    : vocab_(loaded.info.model.vocab),
      capacity_(config.capacity),
      loaded_(loaded),
      inference_(context, *loaded.model, inference_config(config)),
      slots_(static_cast<size_t>(config.slots)),
      log_p_(static_cast<size_t>(config.slots * vocab_)) {}

void Scheduler::add(TextRequest request) { add(std::make_unique<Continuation>(loaded_, std::move(request))); }

void Scheduler::add(std::unique_ptr<Continuation> text) {
  require_usage(text->reach() <= capacity_, "{} tokens of prompt and {} to be made are {}, but there is room for {}",
                text->inputs().size(), text->request().config.max_tokens, text->reach(), capacity_);
  waiting_.push_back(std::move(text));
}

int64_t Scheduler::running() const {
  return std::ranges::count_if(slots_, [](const Slot& slot) { return slot.text != nullptr; });
}

bool Scheduler::step() {
  leave();
  join();
  make_tokens();
  read_prompts();
  return running() + waiting() > 0;
}

void Scheduler::leave() {
  const auto ends = [](const std::unique_ptr<Continuation>& text) {
    if (text && text->request().should_stop()) text->end(Ended::kAsked);
    return text && !text->is_open();
  };
  for (Slot& slot : slots_) {
    if (ends(slot.text)) slot.text.reset();
  }
  std::erase_if(waiting_, ends);
}

void Scheduler::join() {
  for (size_t s = 0; s < slots_.size() && !waiting_.empty(); ++s) {
    if (slots_[s].text) continue;
    slots_[s] = {.text = std::move(waiting_.front()), .number = joined_++};
    waiting_.pop_front();
    inference_.forget(static_cast<int64_t>(s));
    if (slots_[s].text->request().config.max_tokens > 0) continue;
    slots_[s].text->end(Ended::kLength);
    slots_[s--].text.reset();  // the next takes its place
  }
}

void Scheduler::make_tokens() {
  rows_.clear();
  inputs_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].makes()) continue;
    rows_.push_back(static_cast<int32_t>(s));
    inputs_.push_back(slots_[s].text->last());
  }
  if (rows_.empty()) return;
  run(inputs_, 1);
  for (size_t b = 0; b < rows_.size(); ++b) take(static_cast<size_t>(rows_[b]), static_cast<int64_t>(b));
}

// As many pieces as make up one whole piece, those of texts that came first before the others.
void Scheduler::read_prompts() {
  for (int64_t room = kPromptPiece; room > 0;) {
    size_t next = slots_.size();
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].reads() && (next == slots_.size() || slots_[s].number < slots_[next].number)) next = s;
    }
    if (next == slots_.size()) return;
    const auto all = static_cast<int64_t>(slots_[next].text->inputs().size());
    const int64_t count = std::min(kPromptPiece, all - slots_[next].read);
    if (count > room) return;
    read_piece(next, count);
    room -= count;
  }
}

void Scheduler::read_piece(size_t slot, int64_t count) {
  Slot& at = slots_[slot];
  rows_ = {static_cast<int32_t>(slot)};
  run(at.text->inputs().subspan(static_cast<size_t>(at.read), static_cast<size_t>(count)), count);
  at.read += count;
  if (!at.reads()) take(slot, 0);
}

void Scheduler::run(std::span<const int32_t> inputs, int64_t length) {
  first_key_.clear();
  for (const int32_t slot : rows_) {
    const int64_t context = slots_[static_cast<size_t>(slot)].text->request().config.context;
    for (int64_t i = inference_.past(slot); i < inference_.past(slot) + length; ++i) {
      first_key_.push_back(static_cast<int32_t>(context > 0 ? std::max<int64_t>(0, i - context + 1) : 0));
    }
  }
  inference_.log_probabilities({.inputs = inputs, .length = length, .first_key = first_key_, .sequences = rows_},
                               length - 1, {log_p_.data(), static_cast<int64_t>(rows_.size()), vocab_});
}

void Scheduler::take(size_t slot, int64_t row) {
  const auto width = static_cast<size_t>(vocab_);
  Slot& at = slots_[slot];
  at.text->take(std::span(log_p_).subspan(static_cast<size_t>(row) * width, width));
  if (!at.text->is_open()) at.text.reset();
}

}  // namespace longshot
