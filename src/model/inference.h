// Running a model without gradients, over whole sequences of any length or piece by piece on top of a cache. Both go
// through the same blocks. Memory is linear in the length, or in the window.
#pragma once
#include <limits>
#include <span>
#include <vector>

#include "base/watch.h"
#include "model/key_sharing.h"
#include "model/transformer.h"

namespace longshot {

class Inference {
 public:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kChunkTokens = 4096;  // that a single sequence passes through a block at once
  enum class Forget { kNothing, kBySeen, kByWeights };
  struct Config {
    int64_t sequences = 1;
    int64_t tokens = 0;    // most tokens of a sequence that are given at once
    int64_t capacity = 0;  // with a cache: most tokens of a sequence in all; 0: no cache; kEndless: see the next three
    int64_t window = 0;    // a token sees so many at most, itself among them; a cache forgets the others. 0: all
    int64_t sinks = 0;     // with a window and a cache: and the first so many; not for linear biases
    // With a cache, for a linear bias: keys are forgotten once they cannot matter any more, see kernels/forgetting.h, by the
    // queries seen or by what the weights allow.
    Forget forget = Forget::kNothing;
    int64_t rows = 0;  // most tokens of all sequences that are given at once; 0: sequences * tokens
    // A stretch of a longer sequence, whose other stretches are elsewhere: it begins at position `first`, a multiple of
    // kChunkTokens, so that results have the bits of the whole sequence. Without a cache.
    KeySharing* sharing = nullptr;
    int64_t first = 0;
  };
  // `watch`: of bounds that are made from the weights.
  Inference(Context& context, Transformer& model, Config config, const Watch& watch = {});

  struct Tokens {
    std::span<const int32_t> inputs;     // [B, T]
    int64_t length = 0;                  // T
    std::span<const int32_t> first_key;  // [B, T] positions, or empty
    int64_t shift = 0;                   // > 0: sequence b + 1 is sequence b moved on by so many tokens
    // With a cache: [B] how many of the T tokens are of the sequence; those behind are padding and are forgotten after
    // the call. Empty: all.
    std::span<const int64_t> counts = {};
    // With a cache: [B] which of its sequences these are, each at most once; the others stand still. Empty: all, in order.
    std::span<const int32_t> sequences = {};
    Watch watch = {};  // told and asked between parts of a block; what was stopped must begin anew
  };
  // losses[B, T - scored_from]: -ln p of the targets of the last T - scored_from tokens of each sequence.
  // Tokens before are context: the last block and the output layer do nothing for them that is not needed.
  void score(const Tokens& tokens, std::span<const int32_t> targets, int64_t scored_from, std::span<float> losses);
  // out[B (T - wanted_from), V] = ln p of every next token.
  void log_probabilities(const Tokens& tokens, int64_t wanted_from, Mat out);

  // With a cache: tokens of a sequence given so far. A call continues behind them.
  int64_t past(int64_t sequence = 0) const { return past_[static_cast<size_t>(sequence)]; }
  // A sequence begins anew, or all do.
  void forget(int64_t sequence);
  void forget();
  // What a cache that forgets has forgotten, over all layers; what attention leaves out by itself is added.
  ForgettingSummary forgotten() const;

  size_t bytes() const { return memory_.bytes() + forgotten().bytes; }
  // Key tiles that attention visited in the last call, over all layers and heads.
  TileCount visited() const { return visited_; }

 private:
  void layout(Layout& at);
  void check_config() const;
  void forget_by_bound(const Watch& watch);
  void keep_sinks();
  static size_t place(const Tokens& tokens, size_t b) {  // in the cache, of sequence b of a call
    return tokens.sequences.empty() ? b : static_cast<size_t>(tokens.sequences[b]);
  }
  void begin(const Tokens& tokens);
  int64_t embed(const Tokens& tokens);
  struct Chunk {
    int64_t layer, first, count;  // tokens [first, first + count) of each sequence
    int64_t skip, step;           // see LayerPass
    bool keys_stored = false;
  };
  // Returns what attention visited.
  std::span<const VisitedTiles> run_chunk(const Tokens& tokens, const Chunk& chunk, Mat input, Mat output);
  // One layer of a stretch. Returns the rows of the result, at the front of x_: those of all tokens but the first `unwanted`.
  int64_t run_shared(const Tokens& tokens, int64_t layer, int64_t unwanted);
  // Hidden vectors of the wanted tokens, [B (T - wanted_from), C].
  ConstMat run(const Tokens& tokens, int64_t wanted_from);

  Context& context_;
  Transformer& model_;
  Config config_;
  int64_t chunk_;                  // tokens of a sequence per pass through a block
  std::vector<int64_t> past_;      // [sequences]
  std::vector<int64_t> start_;     // [B] position of a call's first tokens
  std::vector<int64_t> position_;  // [B] of a chunk's first tokens
  std::vector<int32_t> distinct_;  // tokens of overlapping sequences, each once
  Mat x_;                          // [B T, C]
  Mat final_;                      // [B T, C] when there is a final norm
  LayerActivations activations_;   // of one chunk
  LayerScratch scratch_;
  std::vector<KeyStore> stores_;        // one per layer with a cache, otherwise one for all
  std::vector<Forgetting> forgetting_;  // one per layer, or none
  std::vector<SinkKeys> sinks_;         // one per layer, or none
  std::vector<float> sink_cos_, sink_sin_;
  std::vector<int64_t> counts_;  // [B] tokens of a chunk that are no padding
  NormStats stats_;
  std::span<float> output_scratch_;
  TileCount visited_;
  Workspace memory_;
};

}  // namespace longshot
