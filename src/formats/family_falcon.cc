// Falcon-RW: BLOOM's layout without the embedding norm. Its scores are (q . k + m j) / sqrt(D) with m rounded to 16 bits, so
// that its slopes in our sense are bf16(m) / sqrt(D). The rounding of every m j that goes with it is not done here: from
// j = 256 on it moves neighbouring keys together.
#include <cmath>

#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  const char* only = "of Falcon the RW models are read: ALiBi, one norm for each part, one key for each head";
  if (!json.flag("alibi", false)) json.refuse("alibi", only);
  if (!json.flag("bias", false)) json.refuse("bias", only);
  if (json.flag("parallel_attn", true)) json.refuse("parallel_attn", only);
  if (json.flag("multi_query", true)) json.refuse("multi_query", only);
  json.must_be("new_decoder_architecture", false, only);
  json.must_be("apply_residual_connection_post_layernorm", false, "the residual stream is the norm's input here");
  ModelConfig model = plain_model(json, true);
  model.dim = json.count({"hidden_size", "n_embed"});
  model.layers = json.count({"num_hidden_layers", "n_layer"});
  model.heads = json.count({"num_attention_heads", "n_head"});
  if (json.count({"num_kv_heads", "n_head_kv"}, model.heads) != model.heads) json.refuse("num_kv_heads", only);
  model.ffn = json.count({"ffn_hidden_size"}, 4 * model.dim);
  model.length = json.count({"max_position_embeddings", "seq_length"}, 2048);
  model.norm_epsilon = json.number({"layer_norm_epsilon"}, 1e-5);
  model.activation = json.activation("activation", "gelu");
  change_slopes(model, [root = std::sqrt(static_cast<double>(model.head_dim()))](double m) {
    return bfloat_to_float(float_to_bfloat(static_cast<float>(m))) / root;
  });
  return model;
}

}  // namespace

extern const Family family_falcon{"Falcon", {"falcon", "RefinedWeb", "RefinedWebModel"}, read, bloom_rules};

}  // namespace longshot
