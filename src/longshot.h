// What a library user includes: load, score, generate, train; attention on its own.
//
//   longshot::Model model = longshot::Model::load("runs/alibi");
//   std::vector<float> losses = model.score(model.encode("In the beginning"));   // nats per token
//
// Everything throws longshot::Error. A Model is used by one thread at a time; several models may be used by several
// threads at once, each with threads of its own inside.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/error.h"
#include "base/version.h"
#include "kernels/attention.h"  // attention_forward, attention_backward: exact, fused bias, memory linear in length

namespace longshot {

class Model {
 public:
  // From a run or a checkpoint directory.
  // `threads` are those that work inside; 0: all cores.
  static Model load(const std::string& path, int threads = 0);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  int64_t train_length() const;
  int64_t vocab_size() const;
  const std::string& position() const;

  // Ids of a text, and back. REQUIRES: the tokenizer travelled with the model.
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;

  // -ln p(id_t | start, ids before t), one per id, in one window of any length.
  std::vector<float> score(std::span<const int32_t> ids);
  // ln p of every next token after `ids`.
  std::vector<float> next_log_probabilities(std::span<const int32_t> ids);

  struct Sampling {
    int64_t max_tokens = 100;
    double temperature = 1.0;  // 0: always the most probable token
    uint64_t seed = 1;
  };
  // Ids that continue `prompt`, drawn token by token on top of a key/value cache.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const Sampling& sampling);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Trains a model on a token set made by `longshot prepare`, with the options of `longshot train` as a TOML text, and
// writes the run. Returns the last training loss in nats per token.
double train(const std::string& data_dir, const std::string& run_dir, const std::string& options_toml);

}  // namespace longshot
