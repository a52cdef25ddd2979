// A language model's checkpoint as fairseq writes it: its configuration and its tensors under this program's
// names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "formats/torch_file.h"

namespace longshot {

// fairseq's values under their meaning here. The file never says whether the model was trained with ALiBi.
struct FairseqConfig {
  std::string architecture;
  int64_t layers = 0, dim = 0, heads = 0, ffn = 0, vocab = 0;
  int64_t length = 0;   // tokens per training sequence; 0 when the file does not say
  int64_t updates = 0;  // optimizer steps done; 0 when the file does not say
  std::string activation = "relu";
  bool final_norm = true;
  bool embed_scale = true;  // embeddings times sqrt(dim)
  bool tied = false;        // one matrix for input and output (not adaptive)
  double dropout = 0.1, attention_dropout = 0, activation_dropout = 0, adaptive_dropout = 0;
  std::vector<int64_t> cutoffs;  // adaptive input and softmax: first ids of bands 1, 2, ...; empty: not adaptive
  double adaptive_factor = 4;    // band k has vectors of dim / factor^k elements

  bool is_adaptive() const { return !cutoffs.empty(); }
  int64_t band_begin(size_t band) const { return band == 0 ? 0 : cutoffs[band - 1]; }
  int64_t band_end(size_t band) const { return band < cutoffs.size() ? cutoffs[band] : vocab; }
  int64_t band_dim(size_t band) const;
};

// One tensor of ours: fairseq tensors one below the other.
struct FairseqTensor {
  std::string name;
  Shape shape;
  std::vector<TorchTensor> parts;
};

class FairseqCheckpoint {
 public:
  // Checks names, shapes and configuration against each other. No weights are read. All tensors together, shared ones
  // counted each time, have at most twice the bytes of the file.
  explicit FairseqCheckpoint(const TorchFile& file);  // the file must outlive it

  static bool is_one(const TorchFile& file);  // has the parts of a fairseq checkpoint

  const FairseqConfig& config() const { return config_; }
  const std::vector<FairseqTensor>& tensors() const { return tensors_; }
  int64_t parameter_count() const;

  // Throws if a checksum of the file is wrong, or if tensors that the configuration calls tied differ anywhere. Reads
  // the whole file.
  void verify(const Watch& watch = {}) const;

 private:
  struct Tie {
    std::string first, second;
    TorchTensor a, b;
  };
  friend class FairseqMapper;

  const TorchFile& file_;
  FairseqConfig config_;
  std::vector<FairseqTensor> tensors_;
  std::vector<Tie> ties_;
};

// Copies a tensor of ours row-major into out. A value that is not finite is refused, with the tensor's name.
void copy_to_float(const FairseqTensor& tensor, std::span<float> out);

}  // namespace longshot
