#include "model/config.h"

#include "base/error.h"
#include "position/position.h"

namespace longshot {

void ModelConfig::fields(Options& o) {
  o.group("model");
  o.add("layers", layers, "number of blocks");
  o.add("dim", dim, "width of the residual stream");
  o.add("heads", heads, "attention heads; must divide dim");
  o.add("ffn", ffn, "width of the feed-forward layer; 0: 4 * dim");
  o.add("length", length, "tokens per training sequence; evaluation may exceed it");
  o.add("norm", norm, {"layernorm", "rmsnorm"}, "normalisation");
  o.add("norm-position", norm_position, {"pre", "post"}, "normalise the input of a sub-layer or its output");
  o.add("final-norm", final_norm, "normalise once more before the output layer");
  o.add("activation", activation, {"relu", "gelu", "swiglu"}, "of the feed-forward layer");
  o.add("bias", bias, "biases in linear layers and layer norms");
  o.add("tied", tied, "the output layer shares the embedding's weights");
  o.add("embed-scale", embed_scale, "multiply embeddings by sqrt(dim)");
  o.add("dropout", dropout, "on the output of every sub-layer");
  o.add("attention-dropout", attention_dropout, "on attention probabilities");
  o.add("activation-dropout", activation_dropout, "behind the activation of the feed-forward layer");
  o.add("embedding-dropout", embedding_dropout, "on the embeddings");
  o.add("document-mask", document_mask, "tokens do not see other documents");
  o.add("attention-epsilon", attention_epsilon,
        "far keys are left out when provably below this share of a query's attention; 0: never");
  o.group("position");
  std::vector<std::string> names;
  for (const PositionMethod* method : position_methods()) names.push_back(method->name);
  o.add("position", position, names, "how the model learns the order of tokens");
  for (const PositionMethod* method : position_methods()) {
    for (const PositionOption& option : method->options) {
      const std::string name = method->name + "-" + option.name;
      position_options.try_emplace(name, option.initial);
      o.add(name, position_options[name], option.help);
    }
  }
}

void ModelConfig::validate() {
  const auto positive = [](const char* name, int64_t value) {
    require_usage(value > 0, "--{} must be positive, not {}", name, value);
  };
  positive("layers", layers);
  positive("dim", dim);
  positive("heads", heads);
  positive("length", length);
  require_usage(ffn >= 0, "--ffn must be positive, or 0 for 4 * dim; not {}", ffn);
  require_usage(dim % heads == 0, "--heads ({}) must divide --dim ({})", heads, dim);
  require_usage(head_dim() <= 512, "--dim / --heads is {}, but the head dimension can be at most 512", head_dim());
  require_usage(dim <= 1 << 20 && ffn_dim() <= 1 << 22 && layers <= 1 << 16 && length <= INT32_MAX,
                "the model is too large: {} layers, dim {}, ffn {}, length {}", layers, dim, ffn_dim(), length);
  require(vocab > 0 && vocab <= INT32_MAX, "vocabulary size {} is not possible", vocab);
  const auto rate = [](const char* name, double value) {
    require_usage(value >= 0 && value < 1, "--{} must be in [0, 1), not {}", name, value);
  };
  rate("dropout", dropout);
  rate("attention-dropout", attention_dropout);
  rate("activation-dropout", activation_dropout);
  rate("embedding-dropout", embedding_dropout);
  rate("attention-epsilon", attention_epsilon);
  position_method(position);
}

Json ModelConfig::to_json() const {
  Json json;
  ModelConfig copy = *this;
  Options options;
  copy.fields(options);
  for (const Option& o : options.all()) json[o.name] = o.get();
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
