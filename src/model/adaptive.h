// Adaptive input and adaptive softmax (Baevski and Auli 2019; Grave et al. 2017), tied as in fairseq's
// transformer_lm_wiki103. Ids, sorted by frequency, are cut into bands; rarer bands have shorter vectors.
//
//   band k   words W_k[n_k, d_k] and a projection P_k[C, d_k],   d_k = C / factor^k
//   input    x = sqrt(C) P_k W_k[id]                             band 0 is projected as well
//   output   p(w) = softmax(h [W_0; clusters]^T)_w                                      w in band 0
//            p(w) = softmax(h [W_0; clusters]^T)_(n_0 + k - 1) softmax(h P_k W_k^T)_w   w in band k > 0
//
// Work and memory go by band: a band's products run over the tokens that fall into it, a chunk at a time.
#pragma once
#include <memory>
#include <vector>

#include "kernels/rowwise.h"
#include "model/embedding.h"
#include "model/output.h"

namespace longshot {

struct AdaptiveBand {
  int64_t first, size, dim;
  ParameterId words, projection;
  bool contains(int32_t id) const { return id >= first && id < first + size; }
};
using AdaptiveBands = std::vector<AdaptiveBand>;

// Declares embed.band<k>.weight and embed.band<k>.projection.
AdaptiveBands add_adaptive_bands(const ModelConfig& config, Parameters& parameters);

class AdaptiveEmbedding : public InputEmbedding {
 public:
  AdaptiveEmbedding(const ModelConfig& config, Parameters& parameters, AdaptiveBands bands);
  void forward(Context& context, std::span<const int32_t> tokens, Mat x) override;
  void backward(Context& context, std::span<const int32_t> tokens, const Gradient& gradient) override;
  int64_t multiply_adds() const override;

 private:
  // places_ and ids_ of the band's tokens.
  void find(const AdaptiveBand& band, std::span<const int32_t> tokens);

  Parameters& parameters_;
  AdaptiveBands bands_;
  float scale_;
  bool padding_rows_;
  std::vector<int32_t> places_;   // of a band's tokens among all
  std::vector<int32_t> ids_;      // inside the band
  std::vector<RowGroup> groups_;  // of a band's tokens
  std::vector<uint64_t> order_;
  std::vector<float> room_;
  Mat words_, projected_;  // [chunk, C]
  Workspace memory_;
};

class AdaptiveSoftmax : public OutputLoss {
 public:
  AdaptiveSoftmax(const ModelConfig& config, Parameters& parameters, AdaptiveBands bands,
                  SharedGradients shared = SharedGradients::kTogether);
  int64_t gradient_room(const RowGroups& groups, int64_t rows) const override;
  int64_t scratch_floats(int64_t rows) const override;
  void loss(Context& context, const Rows& rows) override;
  void loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) override;
  void log_probabilities(Context& context, ConstMat hidden, Mat out) override;

  int64_t multiply_adds() const override;

 private:
  struct Chunk;
  Chunk chunk(size_t band, int64_t rows, float* scratch) const;
  int64_t floats_per_row(size_t band) const;
  int64_t columns(size_t band) const;
  void run(Context& context, const Rows& rows, const Gradient* gradient);
  void run_head(Context& context, const Rows& all, const Gradient* gradient);
  void run_tail(Context& context, size_t k, const Rows& all, const Gradient* gradient);
  static std::optional<float> scale_of(const Gradient* gradient);
  Dropout input_dropout(const Gradient* gradient) const;

  Parameters& parameters_;
  AdaptiveBands bands_;
  struct Gradients {
    GradientId words, projection;
  };
  std::vector<Gradients> gradients_;  // of the bands
  ParameterId clusters_;
  int64_t dim_;
  float dropout_;
  bool padding_rows_;
  std::vector<int32_t> rows_;     // of a tail's tokens
  std::vector<int32_t> targets_;  // inside the band or the head
  std::vector<float> losses_;
  std::vector<RowGroup> groups_;  // of a tail's tokens
};

}  // namespace longshot
