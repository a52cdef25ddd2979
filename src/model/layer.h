// One transformer block: attention, then feed-forward, each a branch around a residual connection.
//
//   pre-norm    y = x + drop(f(norm(x)))          post-norm    y = norm(x + drop(f(x)))
//   parallel    y = x + drop(attention(norm(x))) + drop(feed-forward(norm'(x)))
//
// Letters: N rows (tokens of all sequences), C width, K width of the keys, F feed-forward width.
#pragma once
#include "kernels/attention.h"
#include "kernels/forgetting.h"
#include "model/parts.h"

namespace longshot {

// What the backward pass needs of the forward pass. Normalised inputs and activations are computed again instead.
// Stored in bf16, each is rounded from what the forward pass goes on with; the residual stream itself is of floats.
struct LayerActivations {
  Mat input;                        // [N, C]
  NumberMat kept_input;             // [N, C] the same, or rounded
  NumberMat qkv;                    // [N, C + 2K] queries, keys, values
  NumberMat mixed;                  // [N, C] attention's output, before its projection
  std::span<float> lse;             // [B, H, T]
  std::span<VisitedTiles> visited;  // [B, H, query tiles]
  NumberMat middle_sum;             // [N, C] input + attention branch (post-norm only)
  NumberMat middle;                 // [N, C] input of the feed-forward branch
  NumberMat hidden;                 // [N, F] before the activation; swiglu: [N, 2F]
  NumberMat output_sum;             // [N, C] (post-norm only)
  Mat output;                       // [N, C]

  // All but input and output, which are the neighbours' as well, and a kept input of floats, which is the input.
  void layout(Layout& at, const ModelConfig& config, const AttentionShape& shape, Precision stored = Precision::kF32);
  // The same for the first rows alone.
  LayerActivations first_rows(int64_t rows) const;
};

// Memory that all layers share. Where a layer keeps bf16, what is never needed together lies in the same place.
struct LayerScratch {
  NumberMat normed;             // [N, C]
  Mat branch;                   // [N, C]
  float* wide = nullptr;        // [N, max(C + 2K, F or 2F)] what a product makes, before it is rounded
  Mat residual;                 // [N, C] input rows of the wanted tokens
  std::span<int64_t> position;  // [B] of the first wanted token
  std::span<int64_t> counts;    // [B] wanted tokens that are no padding
  std::span<float> q_norm;      // [B, H, T] for a cache that forgets
  AttentionResult sinks;        // of the wanted tokens, for a window with sinks
  std::span<VisitedTiles> sink_tiles;
  std::span<int32_t> sink_last;  // [B, T] sinks a query sees
  NumberMat active;              // [N, F]
  NormStats stats;               // [N]
  // For the backward pass.
  Mat d_branch;        // [N, C]; in the forward pass the residual stream's middle, where a layer keeps bf16
  Mat d_mixed;         // [N, C]
  NumberMat d_hidden;  // [N, F] or [N, 2F]
  Mat d_active;        // [N, F]
  NumberMat d_qkv;     // [N, C + 2K]
  Mat d_bias;          // [groups H, columns]

  struct Needs {
    bool training = false;
    int64_t bias_columns = 0;  // of the bias's gradient; 0: it is not wanted
    int64_t groups = 1;        // that it is made for
    bool forgets = false, sinks = false;
    Precision stored = Precision::kF32;  // of the layers' activations
  };
  void layout(Layout& at, const ModelConfig& config, const AttentionShape& shape, Needs needs);
  // The same for the first rows alone, of a backward pass too.
  LayerScratch first_rows(int64_t rows) const;

 private:
  void layout_backward(Layout& at, const ModelConfig& config, int64_t rows);
  void layout_bf16(Layout& at, const ModelConfig& config, int64_t rows);
};

// The first tokens of a stream, which stay in sight of a window that has left them behind. They are seen as from the
// farthest position at which nothing between them and the window is missing, wherever the query is: its rotation is the one
// there, and a table over distances ends there.
struct SinkKeys {
  KeyStore store;
  int64_t count = 0, window = 0;
  int64_t seen_from() const { return window + count - 1; }
  Rotation rotation = {};  // of the queries
};

// One pass over a block.
struct LayerPass {
  AttentionShape shape;  // T new tokens of each sequence
  AttentionOptions attention;
  KeyStore* store = nullptr;
  std::span<const int64_t> position;     // [B] of the first new token
  std::span<const int64_t> counts = {};  // [B] new tokens that are no padding; empty: all
  Forgetting* forgetting = nullptr;      // of the store
  SinkKeys* sinks = nullptr;
  int64_t skip = 0;          // leading new tokens that are context only: their keys and values count, no output is made
  int64_t step = 0;          // rows of the input from one sequence to the next: T, or fewer where sequences overlap
  bool training = false;     // apply the configured dropout
  uint64_t dropout_key = 0;  // of this layer in this step
  int64_t first_sequence = 0;  // in the whole batch, by which dropout goes
  RowGroups groups = {};       // of the rows, for the sums of gradients
  // The new keys are in the store already. Where it lacks others no output is made; a.visited tells.
  bool keys_stored = false;
  int64_t wanted() const { return shape.queries - skip; }
};

class Layer {
 public:
  Layer(const ModelConfig& config, Parameters& parameters, int64_t index);

  // a.output[B W, C] from a.input, W = T - skip wanted tokens of each sequence.
  void forward(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const;
  // dx[N, C]: gradient of the output on entry, of the input on return. Adds to the parameters' gradients;
  // s.d_bias holds the gradient of the bias where it is wanted.
  void backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s, Mat dx);
  // The largest norms of each head's queries and keys, [H], whatever the tokens, where the block's input is
  // gains * z + shift with |z| <= radius; in front of a norm of its own that is the norm's.
  struct Input {
    std::span<const float> gains, shift;  // [C] or empty: 1, 0
    double radius = 0;
  };
  std::vector<NormBounds> norm_bounds(Context& context, const Input& input) const;
  // What the block behind a post-norm block gets.
  Input output_bound() const;
  // Of one token in a sequence of `length`, forward.
  int64_t multiply_adds(int64_t length) const;

 private:
  enum class Place : uint64_t { kAttention = 1, kActivation = 2, kAttentionBranch = 3, kFfnBranch = 4 };
  Dropout dropout(const LayerPass& pass, Place place) const;
  AttentionOptions attention_options(const LayerPass& pass) const;

  NumberMat qkv_part(NumberMat qkv, int64_t i) const;  // queries, keys or values
  void project_qkv(Context& context, const LayerPass& pass, ConstNumberMat x, const LayerActivations& a,
                   LayerScratch& s) const;
  void attend(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const;
  static void store_sinks(Context& context, const LayerPass& pass, const ConstNumberHeads& k,
                          const ConstNumberHeads& v);
  static void attend_sinks(Context& context, const LayerPass& pass, const AttentionQueries& queries, LayerScratch& s);
  static void certify(const LayerPass& pass, const AttentionQueries& queries, LayerScratch& s);
  void attention_gradients(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s) const;
  void ffn_backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s, Mat dx);
  void projection_backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s, Mat dx);
  static ConstMat wanted_input(Context& context, const LayerPass& pass, ConstMat input, LayerScratch& s);
  ConstNumberMat branch_input(Context& context, const NormLayer& norm, ConstNumberMat x, LayerScratch& s) const;
  struct BranchInput {
    NormLayer& norm;
    ConstNumberMat x;
  };
  void branch_input_backward(Context& context, const LayerPass& pass, const BranchInput& b, LayerScratch& s,
                             Mat dx) const;
  struct Joined {
    Mat sum, out;                  // [N, C]; sum: post-norm only
    NumberMat kept_sum, kept_out;  // for the backward pass
    NormStats stats;
  };
  void join(Context& context, const NormLayer& norm, ConstMat x, const Branch& branch, const Joined& to) const;
  struct JoinedBranch {
    NormLayer& norm;
    ConstNumberMat sum;
    Dropout drop;
  };
  ConstMat join_backward(Context& context, const LayerPass& pass, const JoinedBranch& b, LayerScratch& s, Mat dx) const;

  const ModelConfig& config_;
  bool pre_norm_;
  NormLayer attention_norm_;
  Linear qkv_, out_;
  NormLayer ffn_norm_;
  Linear ffn_in_, ffn_out_;
};

}  // namespace longshot
