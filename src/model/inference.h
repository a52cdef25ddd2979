// Running a model without gradients, over whole sequences of any length or token by token on top of a cache. Both go
// through the same blocks. Memory is linear in the length.
#pragma once
#include <span>
#include <vector>

#include "model/transformer.h"

namespace longshot {

class Inference {
 public:
  struct Config {
    int64_t sequences = 1;
    int64_t tokens = 0;    // most tokens of a sequence that are given at once
    int64_t capacity = 0;  // with a cache: most tokens of a sequence in all; 0: no cache
  };
  Inference(Context& context, Transformer& model, Config config);

  struct Tokens {
    std::span<const int32_t> inputs;     // [B, T]
    int64_t length = 0;                  // T
    std::span<const int32_t> first_key;  // [B, T] or empty
    int64_t shift = 0;                   // > 0: sequence b + 1 is sequence b moved on by so many tokens
  };
  // losses[B, T - scored_from]: -ln p of the targets of the last T - scored_from tokens of each sequence.
  // Tokens before are context: the last block and the output layer do nothing for them that is not needed.
  void score(const Tokens& tokens, std::span<const int32_t> targets, int64_t scored_from, std::span<float> losses);
  // out[B (T - wanted_from), V] = ln p of every next token.
  void log_probabilities(const Tokens& tokens, int64_t wanted_from, Mat out);

  // With a cache: tokens given so far. A call continues behind them.
  int64_t past() const { return past_; }
  void forget() { past_ = 0; }

  size_t bytes() const { return memory_.bytes(); }
  // Key tiles that attention visited in the last call, over all layers and heads.
  TileCount visited() const { return visited_; }

 private:
  void layout(Layout& at);
  // Hidden vectors of the wanted tokens, [B (T - wanted_from), C].
  ConstMat run(const Tokens& tokens, int64_t wanted_from);

  Context& context_;
  Transformer& model_;
  Config config_;
  int64_t chunk_;  // tokens of a sequence per pass through a block
  int64_t past_ = 0;
  Mat x_;                         // [B T, C]
  Mat final_;                     // [B T, C] when there is a final norm
  LayerActivations activations_;  // of one chunk
  LayerScratch scratch_;
  std::vector<KeyStore> stores_;  // one per layer with a cache, otherwise one for all
  std::span<float> mean_, rstd_, output_scratch_;
  TileCount visited_;
  Workspace memory_;
};

}  // namespace longshot
