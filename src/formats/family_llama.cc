// Llama: rotary positions in halves, RMSNorm, SwiGLU; heads may share keys and values.
#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  json.must_be("hidden_act", "silu", "its feed-forward part is SwiGLU");
  json.must_be("attention_bias", false, "a Llama has no biases here");
  json.must_be("mlp_bias", false, "a Llama has no biases here");
  ModelConfig model = plain_model(json, false);
  model.dim = json.count({"hidden_size"});
  model.layers = json.count({"num_hidden_layers"});
  model.heads = json.count({"num_attention_heads"});
  model.kv_heads = json.count({"num_key_value_heads"}, model.heads);
  model.ffn = json.count({"intermediate_size"});
  model.length = json.count({"max_position_embeddings"}, 2048);
  model.norm_epsilon = json.number({"rms_norm_eps"}, 1e-6);
  model.norm = NormKind::kRmsNorm;
  model.activation = Activation::kSwiglu;
  model.bias = false;
  if (json.count({"head_dim"}, model.head_dim()) != model.head_dim())
    json.refuse("head_dim",
                fmt::format("heads are hidden_size / num_attention_heads = {} wide here", model.head_dim()));
  read_rotary(json,
              {.base = "rope_theta", .fraction = "partial_rotary_factor", .default_fraction = 1, .whole_heads = true},
              model);
  return model;
}

TensorRules rules(const ModelConfig& model) {
  TensorRules r;
  r.skipped = {".rotary_emb.inv_freq"};
  r.rules.push_back({"embed.weight", {{"model.embed_tokens.weight"}}});
  const std::string ours = "layers.{}.", theirs = "model.layers.{}.", attention = theirs + "self_attn.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "input_layernorm");
  r.rules.push_back({ours + "attention.qkv.weight",
                     {{attention + "q_proj.weight", Arrangement::kSame, model.dim},
                      {attention + "k_proj.weight", Arrangement::kSame, model.key_dim()},
                      {attention + "v_proj.weight", Arrangement::kSame, model.key_dim()}}});
  add_linear(r.rules, model, ours + "attention.out", attention + "o_proj");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "post_attention_layernorm");
  add_gated(r.rules, model, ours + "ffn.in", {theirs + "mlp.gate_proj", theirs + "mlp.up_proj"});
  add_linear(r.rules, model, ours + "ffn.out", theirs + "mlp.down_proj");
  add_norm(r.rules, model, "final_norm", "model.norm");
  add_output(r, model, "lm_head.weight", "model.embed_tokens.weight");
  return r;
}

}  // namespace

extern const Family family_llama{"Llama", {"llama"}, read, rules};

}  // namespace longshot
