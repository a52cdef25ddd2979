#include "model/config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longshot {

void ModelConfig::fields(Options& o) {
  o.group("model");
  o.add("layers", layers, "number of blocks");
  o.add("dim", dim, "width of the residual stream");
  o.add("heads", heads, "attention heads; must divide dim");
  o.add("kv-heads", kv_heads, "heads of keys and values, each shared by as many heads; must divide heads; 0: as heads");
  o.add("ffn", ffn, "width of the feed-forward layer; 0: 4 * dim");
  o.add("length", length, "tokens per training sequence; evaluation may exceed it");
  o.add("norm", norm, kNormKinds, "normalisation");
  o.add("norm-position", norm_position, kNormPositions, "normalise the input of a sub-layer or its output");
  o.add("norm-epsilon", norm_epsilon, "added to the variance that a norm divides by");
  o.add("embedding-norm", embedding_norm, "normalise what enters the first block");
  o.add("final-norm", final_norm, "normalise once more before the output layer");
  o.add("activation", activation, kActivations, "of the feed-forward layer");
  o.add("bias", bias, "biases in linear layers and layer norms");
  o.add("tied", tied, "the output layer shares the embedding's weights");
  o.add("embed-scale", embed_scale, "multiply embeddings by sqrt(dim)");
  o.add("parallel-residual", parallel_residual,
        "both sub-layers read the block's input: x + attention(norm(x)) + feed-forward(norm(x))");
  o.add("clip-qkv", clip_qkv, "queries, keys and values are cut off beyond this; 0: not");
  o.add("score-scale", score_scale, "multiplies the products of queries and keys; 0: 1 / sqrt(dim / heads)");
  o.add("dropout", dropout, "on the output of every sub-layer");
  o.add("attention-dropout", attention_dropout, "on attention probabilities");
  o.add("activation-dropout", activation_dropout, "behind the activation of the feed-forward layer");
  o.add("embedding-dropout", embedding_dropout, "on the embeddings");
  o.add("adaptive-cutoffs", adaptive_cutoffs,
        "adaptive input and softmax: first id of each further band, e.g. 20000,60000; none: one matrix");
  o.add("adaptive-factor", adaptive_factor, "a band's vectors are shorter by this than those of the band before");
  o.add("adaptive-dropout", adaptive_dropout, "on the input of the adaptive softmax, and inside its further bands");
  o.add("adaptive-padding-rows", adaptive_padding_rows,
        "as fairseq trains: the second id of every band is treated as padding");
  o.add("document-mask", document_mask, "tokens do not see other documents");
  o.add("attention-epsilon", attention_epsilon,
        "far keys are left out when provably below this share of a query's attention; 0: never");
  o.group("position");
  std::vector<std::string> names;
  for (const PositionMethod* method : position_methods()) names.push_back(method->name);
  o.add("position", position, names, "how the model learns the order of tokens");
  position_options.fields(o);
}

void ModelConfig::set(const std::string& name, const std::string& value) {
  Options options;
  fields(options);
  options.set(name, value);
}

std::unique_ptr<Position> ModelConfig::make_position() const {
  return position_options.make(position,
                               {.layers = layers, .heads = heads, .head_dim = head_dim(), .train_length = length});
}

void ModelConfig::validate() {
  const auto from_one_to = [](int64_t most, const char* name, int64_t value) {
    require_usage(value > 0, "--{} must be positive, not {}", name, value);
    require_usage(value <= most, "--{} must be at most {}, not {}", name, most, value);
  };
  from_one_to(1 << 14, "layers", layers);
  from_one_to(1 << 20, "dim", dim);
  from_one_to(kMostHeads, "heads", heads);
  from_one_to(kLongestLength, "length", length);
  require_usage(ffn >= 0, "--ffn must be positive, or 0 for 4 * dim; not {}", ffn);
  from_one_to(1 << 22, "ffn", ffn_dim());
  require_usage(dim % heads == 0, "--heads ({}) must divide --dim ({})", heads, dim);
  require_usage(kv_heads >= 0 && heads % key_heads() == 0, "--kv-heads ({}) must divide --heads ({})", kv_heads, heads);
  require_usage(head_dim() <= 512, "--dim / --heads is {}, but the head dimension can be at most 512", head_dim());
  require(vocab > 0 && vocab <= INT32_MAX, "vocabulary size {} is not possible", vocab);
  const double weights = static_cast<double>(layers) * static_cast<double>(dim * (dim + qkv_dim() + 2 * ffn_dim())) +
                         static_cast<double>(vocab * dim);
  require_usage(weights <= 1e12, "a model of {} layers, dim {}, ffn {} and {} tokens has {:.2g} weights: too many",
                layers, dim, ffn_dim(), vocab, weights);
  require_usage(norm_epsilon > 0 && norm_epsilon <= 1, "--norm-epsilon must be in (0, 1], not {}", norm_epsilon);
  require_usage(clip_qkv >= 0 && std::isfinite(clip_qkv), "--clip-qkv must be positive, or 0 for none; not {}",
                clip_qkv);
  require_usage(score_scale >= 0 && score_scale <= 1e3,
                "--score-scale must be positive and at most 1000, or 0 for 1 / sqrt(dim / heads); not {}", score_scale);
  require_usage(!parallel_residual || norm_position == NormPosition::kPre,
                "--parallel-residual needs --norm-position pre: its sub-layers share one input and one sum");
  const auto rate = [](const char* name, double value) {
    require_usage(value >= 0 && value < 1, "--{} must be in [0, 1), not {}", name, value);
  };
  rate("dropout", dropout);
  rate("attention-dropout", attention_dropout);
  rate("activation-dropout", activation_dropout);
  rate("embedding-dropout", embedding_dropout);
  rate("adaptive-dropout", adaptive_dropout);
  rate("attention-epsilon", attention_epsilon);
  if (is_adaptive()) {
    for (size_t k = 0; k < adaptive_cutoffs.size(); ++k) {
      const int64_t before = k == 0 ? 0 : adaptive_cutoffs[k - 1];
      require_usage(adaptive_cutoffs[k] > before && adaptive_cutoffs[k] < vocab,
                    "--adaptive-cutoffs must ascend from above 0 to below the vocabulary's {}, but has {}", vocab,
                    adaptive_cutoffs[k]);
    }
    require_usage(adaptive_factor >= 1 && adaptive_dim(adaptive_cutoffs.size()) > 0,
                  "--adaptive-factor {} leaves no elements of --dim {} for band {}, or is below 1", adaptive_factor,
                  dim, adaptive_cutoffs.size());
    require_usage(tied, "--adaptive-cutoffs shares the words of input and output, so --tied cannot be false");
  }
  make_position();
}

AttentionShape ModelConfig::attention_shape(int64_t sequences, int64_t queries) const {
  return {.sequences = sequences, .queries = queries, .heads = heads, .head_dim = head_dim(), .key_heads = key_heads()};
}

double ModelConfig::scale_of_scores() const {
  return score_scale > 0 ? score_scale : 1 / std::sqrt(static_cast<double>(head_dim()));
}

int64_t ModelConfig::adaptive_dim(size_t band) const {
  return static_cast<int64_t>(static_cast<double>(dim) / std::pow(adaptive_factor, static_cast<double>(band)));
}

Json ModelConfig::to_json() const {
  Json json = option_values(*this);
  json["vocab"] = std::to_string(vocab);
  return json;
}

ModelConfig ModelConfig::from_json(const Json& json, const std::string& origin) {
  require(json.is_object(), "{}: the model's configuration is not an object", origin);
  ModelConfig config;
  Options options;
  config.fields(options);
  options.add("vocab", config.vocab, "");
  for (const auto& [key, value] : json.items()) {
    require(value.is_string(), "{}: model option '{}' is not text", origin, key);
    try {
      options.at(key).set(value.get<std::string>());
    } catch (const Error& e) {
      fail("{}: {}", origin, e.what());
    }
  }
  config.validate();
  return config;
}

}  // namespace longshot
