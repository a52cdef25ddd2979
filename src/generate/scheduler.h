// Many texts made at once, each as if it were alone: they join and leave between steps. A text depends on its request and
// on nothing else, to the last bit: not on the texts beside it, the slot it has, or when it came.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "generate/continuation.h"
#include "model/inference.h"

namespace longshot {

// Tokens of a prompt that run at once. Where a prompt is cut decides its last bits, so it is cut here and nowhere else.
constexpr int64_t kPromptPiece = 384;

class Scheduler {
 public:
  struct Config {
    int64_t slots = 1;           // texts made at once
    int64_t capacity = 0;        // most tokens of a text: start id, prompt and what is made
    int64_t most_prompt = 1024;  // tokens of the longest prompt, where it is known; memory is for a piece at most
  };
  // All memory is taken here.
  Scheduler(Context& context, LoadedModel& loaded, Config config);

  // Waits for a slot in the order of arrival. Error(kUsage) for a request that cannot be served.
  void add(TextRequest request);
  void add(std::unique_ptr<Continuation> text);
  // A token of every text whose prompt has been read, and a piece of the prompts that have not. False: nothing to do.
  bool step();

  int64_t running() const;
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  size_t bytes() const { return inference_.bytes(); }

 private:
  struct Slot {
    std::unique_ptr<Continuation> text{};
    int64_t read = 0;  // tokens of the inputs
    uint64_t number = 0;
    bool reads() const { return text && read < static_cast<int64_t>(text->inputs().size()); }
    bool makes() const { return text && !reads(); }
  };
  void leave();
  void join();
  void make_tokens();
  void read_prompts();
  void read_piece(size_t slot, int64_t count);
  // ln p of what follows `length` more tokens of each of the sequences in rows_, into log_p_.
  void run(std::span<const int32_t> inputs, int64_t length);
  void take(size_t slot, int64_t row);

  int64_t vocab_, capacity_;
  const LoadedModel& loaded_;
  Inference inference_;
  std::vector<Slot> slots_;
  std::deque<std::unique_ptr<Continuation>> waiting_;
  uint64_t joined_ = 0;
  // Of a call.
  std::vector<int32_t> rows_;       // [B] slots
  std::vector<int32_t> inputs_;     // [B, T]
  std::vector<int32_t> first_key_;  // [B, T]
  std::vector<float> log_p_;        // [B, V]
};

}  // namespace longshot
