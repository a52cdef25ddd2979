// GPT-2: learned positions; the matrices of its linear layers are stored turned.
#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  json.must_be("scale_attn_by_inverse_layer_idx", false, "all layers scale their scores alike here");
  ModelConfig model = plain_model(json, true);
  model.dim = json.count({"n_embd", "hidden_size"});
  model.layers = json.count({"n_layer", "num_hidden_layers"});
  model.heads = json.count({"n_head", "num_attention_heads"});
  model.ffn = json.count({"n_inner"}, 4 * model.dim);
  model.length = json.count({"n_positions", "max_position_embeddings"}, 1024);
  model.norm_epsilon = json.number({"layer_norm_epsilon"}, 1e-5);
  model.activation = json.activation("activation_function", "gelu_new");
  model.position = "learned";
  if (!json.flag("scale_attn_weights", true)) model.score_scale = 1;
  return model;
}

TensorRules rules(const ModelConfig& model) {
  TensorRules r;
  r.optional_prefix = "transformer.";
  r.skipped = {".attn.bias", ".attn.masked_bias"};
  r.rules.push_back({"embed.weight", {{"transformer.wte.weight"}}});
  r.rules.push_back({"position.embedding", {{"transformer.wpe.weight"}}});
  const std::string ours = "layers.{}.", theirs = "transformer.h.{}.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "ln_1");
  add_linear(r.rules, model, ours + "attention.qkv", theirs + "attn.c_attn", Arrangement::kTransposed);
  add_linear(r.rules, model, ours + "attention.out", theirs + "attn.c_proj", Arrangement::kTransposed);
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "ln_2");
  add_linear(r.rules, model, ours + "ffn.in", theirs + "mlp.c_fc", Arrangement::kTransposed);
  add_linear(r.rules, model, ours + "ffn.out", theirs + "mlp.c_proj", Arrangement::kTransposed);
  add_norm(r.rules, model, "final_norm", "transformer.ln_f");
  add_output(r, model, "lm_head.weight", "transformer.wte.weight");
  return r;
}

}  // namespace

extern const Family family_gpt2{"GPT-2", {"gpt2"}, read, rules};

}  // namespace longshot
