// GPT-NeoX and Pythia: rotary positions in halves on a part of each head, both branches of a block beside each other.
#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  json.must_be("attention_bias", true, "its linear layers all have biases here");
  ModelConfig model = plain_model(json, false);
  model.dim = json.count({"hidden_size"});
  model.layers = json.count({"num_hidden_layers"});
  model.heads = json.count({"num_attention_heads"});
  model.ffn = json.count({"intermediate_size"}, 4 * model.dim);
  model.length = json.count({"max_position_embeddings"}, 2048);
  model.norm_epsilon = json.number({"layer_norm_eps"}, 1e-5);
  model.parallel_residual = json.flag("use_parallel_residual", true);
  model.activation = json.activation("hidden_act", "gelu");
  read_rotary(json,
              {.base = "rotary_emb_base", .fraction = "rotary_pct", .default_fraction = 0.25, .whole_heads = false},
              model);
  return model;
}

TensorRules rules(const ModelConfig& model) {
  TensorRules r;
  r.skipped = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"};
  r.rules.push_back({"embed.weight", {{"gpt_neox.embed_in.weight"}}});
  const std::string ours = "layers.{}.", theirs = "gpt_neox.layers.{}.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "input_layernorm");
  add_linear(r.rules, model, ours + "attention.qkv", theirs + "attention.query_key_value", Arrangement::kQkvByHead);
  add_linear(r.rules, model, ours + "attention.out", theirs + "attention.dense");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "post_attention_layernorm");
  add_linear(r.rules, model, ours + "ffn.in", theirs + "mlp.dense_h_to_4h");
  add_linear(r.rules, model, ours + "ffn.out", theirs + "mlp.dense_4h_to_h");
  add_norm(r.rules, model, "final_norm", "gpt_neox.final_layer_norm");
  add_output(r, model, "embed_out.weight", "gpt_neox.embed_in.weight");
  r.other_names = {{"lm_head.weight", "embed_out.weight"}};  // what state_dict() gives in transformers 5
  return r;
}

}  // namespace

extern const Family family_gpt_neox{"GPT-NeoX", {"gpt_neox"}, read, rules};

}  // namespace longshot
