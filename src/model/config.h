// What a model is made of. Everything needed to build it again; stored in every run and checkpoint.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "kernels/attention.h"
#include "kernels/rowwise.h"
#include "position/position.h"

namespace longshot {

enum class NormKind { kLayerNorm, kRmsNorm };
constexpr Choice<NormKind> kNormKinds[] = {{"layernorm", NormKind::kLayerNorm}, {"rmsnorm", NormKind::kRmsNorm}};
enum class NormPosition { kPre, kPost };
constexpr Choice<NormPosition> kNormPositions[] = {{"pre", NormPosition::kPre}, {"post", NormPosition::kPost}};

constexpr int64_t kLongestLength = int64_t{1} << 30;  // of a sequence, in tokens
constexpr int64_t kMostHeads = 1 << 20;

struct ModelConfig {
  int64_t layers = 4;
  int64_t dim = 256;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // heads of keys and values; 0: as many as of queries
  int64_t ffn = 0;       // 0: 4 * dim
  int64_t vocab = 0;
  int64_t length = 256;  // tokens per training sequence; evaluation may exceed it

  std::string position = "alibi";
  PositionSettings position_options;  // of all methods

  NormKind norm = NormKind::kLayerNorm;
  NormPosition norm_position = NormPosition::kPre;
  double norm_epsilon = 1e-5;
  bool embedding_norm = false;
  bool final_norm = true;
  Activation activation = Activation::kRelu;
  bool bias = true;
  bool tied = true;
  bool embed_scale = true;
  bool parallel_residual = false;
  double clip_qkv = 0;     // 0: not clipped
  double score_scale = 0;  // 0: 1 / sqrt(head_dim)

  double dropout = 0, attention_dropout = 0, activation_dropout = 0, embedding_dropout = 0;
  std::vector<int64_t> adaptive_cutoffs;  // first ids of bands 1, 2, ...; empty: neither adaptive input nor softmax
  double adaptive_factor = 4;
  double adaptive_dropout = 0;
  bool adaptive_padding_rows = false;
  bool document_mask = false;
  double attention_epsilon = 0x1p-24;

  // Every option but `vocab`, which comes from the data.
  void fields(Options& o);
  // Sets one of them by name; the way to a position method's own.
  void set(const std::string& name, const std::string& value);
  // Fills derived defaults and checks that the parts fit together; Error(kUsage) otherwise.
  void validate();

  std::unique_ptr<Position> make_position() const;

  int64_t head_dim() const { return dim / heads; }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t key_dim() const { return key_heads() * head_dim(); }
  int64_t qkv_dim() const { return dim + 2 * key_dim(); }
  AttentionShape attention_shape(int64_t sequences, int64_t queries) const;
  // What q . k is multiplied by.
  double scale_of_scores() const;
  int64_t ffn_dim() const { return ffn > 0 ? ffn : 4 * dim; }

  bool is_adaptive() const { return !adaptive_cutoffs.empty(); }
  int64_t adaptive_dim(size_t band) const;  // dim / factor^band

  Json to_json() const;
  static ModelConfig from_json(const Json& json, const std::string& origin);
};

}  // namespace longshot
