// The files of a run. The only place that spells these names.
//
//   RUN/config.toml        effective options
//   RUN/metrics.jsonl      one record per logged step or validation
//   RUN/evals.jsonl        one record per evaluation
//   RUN/checkpoints/step-00000100/{model.safetensors, optimizer.safetensors, state.json, tokenizer.*}
//   RUN/checkpoints/best.json
#pragma once
#include <fmt/format.h>

#include "base/files.h"

namespace longshot {

class RunDir {
 public:
  explicit RunDir(fs::path dir) : dir_(std::move(dir)) {}
  const fs::path& path() const { return dir_; }
  fs::path config() const { return dir_ / "config.toml"; }
  fs::path metrics() const { return dir_ / "metrics.jsonl"; }
  fs::path evals() const { return dir_ / "evals.jsonl"; }
  fs::path checkpoints() const { return dir_ / "checkpoints"; }
  fs::path checkpoint(int64_t step) const { return checkpoints() / fmt::format("step-{:08}", step); }
  fs::path best() const { return checkpoints() / "best.json"; }

 private:
  fs::path dir_;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

}  // namespace longshot
