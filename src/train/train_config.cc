#include "train/train_config.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "model/config.h"

namespace longshot {

void TrainConfig::fields(Options& o) {
  o.group("training");
  o.add("steps", steps, "updates");
  o.add("batch-tokens", batch_tokens, "tokens per update");
  o.add("micro-batch-tokens", micro_batch_tokens, "tokens worked on at once, accumulated to a batch; 0: up to 8192");
  o.add("seed", seed, "of initial weights, data order and dropout");
  schedule.fields(o);
  o.add("eval-every", eval_every, "steps between validations; 0: at the end only");
  o.add("eval-lengths", eval_lengths, "also validate in windows of these lengths, beside the training length");
  o.add("save-every", save_every, "steps between checkpoints; 0: by time only, and at the end");
  o.add("save-minutes", save_minutes, "minutes between checkpoints; 0: by steps only, and at the end");
  o.add("keep", keep, "checkpoints to keep, beside the best");
  o.add("log-every", log_every, "steps between records in metrics.jsonl");
  o.add("max-seconds", max_seconds, "end after this much training time; 0: no limit");
  o.add("precision", precision, kPrecisions,
        "of the numbers that are multiplied: bf16 is several times as fast where the CPU has it");
  o.add("recompute", recompute, "less memory: run each block again in the backward pass");
  o.add("batch-groups", batch_groups,
        "sum gradients by so many parts of a batch, a power of 2: the same bits on so many ranks, a half, .. one; 1: "
        "plainly");
  optimizer.fields(o);
}

namespace {

constexpr int64_t kMostSteps = int64_t{1} << 32, kMostBatchTokens = int64_t{1} << 26, kMostGroups = 1024;

}  // namespace

void TrainConfig::validate(int64_t length) {
  require_usage(steps > 0 && steps <= kMostSteps, "--steps must be positive and at most {}, not {}", kMostSteps, steps);
  for (const auto& [name, tokens] :
       {std::pair("batch-tokens", batch_tokens), std::pair("micro-batch-tokens", micro_batch_tokens)}) {
    require_usage(tokens <= kMostBatchTokens, "--{} must be at most {}, not {}", name, kMostBatchTokens, tokens);
  }
  require_usage(batch_tokens >= length, "--batch-tokens ({}) must hold at least one sequence of --length {}",
                batch_tokens, length);
  require_usage(micro_batch_tokens == 0 || micro_batch_tokens >= length,
                "--micro-batch-tokens ({}) must hold at least one sequence of --length {}", micro_batch_tokens, length);
  require_usage(keep > 0, "--keep must be positive, not {}", keep);
  require_usage(log_every > 0, "--log-every must be positive, not {}", log_every);
  require_usage(save_every >= 0 && eval_every >= 0, "--save-every and --eval-every must not be negative");
  for (const int64_t other : eval_lengths) {
    require_usage(other > 0 && other <= kLongestLength, "--eval-lengths: {} is not between 1 and {}", other,
                  kLongestLength);
  }
  require_usage(save_minutes >= 0, "--save-minutes must not be negative, but is {}", save_minutes);
  require_usage(max_seconds >= 0, "--max-seconds must not be negative, but is {}", max_seconds);
  require_usage(
      batch_groups >= 1 && batch_groups <= kMostGroups && std::has_single_bit(static_cast<uint64_t>(batch_groups)),
      "--batch-groups: {} is not a power of 2 between 1 and {}", batch_groups, kMostGroups);
  optimizer.validate();
  schedule.validate(steps);
}

bool may_change_on_resume(const std::string& option) {
  constexpr std::array<std::string_view, 12> kFree = {
      "steps",     "save-every", "save-minutes",       "eval-every",  "eval-lengths", "keep",
      "log-every", "recompute",  "micro-batch-tokens", "max-seconds", "precision",    "batch-groups"};
  return std::ranges::find(kFree, option) != kFree.end();
}

}  // namespace longshot
