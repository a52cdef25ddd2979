// Baichuan-13B: ALiBi with RMSNorm and SwiGLU. The 7B is rotary and says so by "max_position_embeddings"; the second
// generation normalises the rows of its output and says so by "z_loss_weight".
#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  if (json.has("max_position_embeddings"))
    json.refuse("max_position_embeddings", "a Baichuan with this key is rotary (7B); the 13B with ALiBi is read");
  if (json.has("z_loss_weight"))
    json.refuse("z_loss_weight",
                "a Baichuan with this key (Baichuan2) normalises its output matrix, which is not done");
  json.must_be("hidden_act", "silu", "its feed-forward part is SwiGLU");
  ModelConfig model = plain_model(json, false);
  model.dim = json.count({"hidden_size"});
  model.layers = json.count({"num_hidden_layers"});
  model.heads = json.count({"num_attention_heads"});
  model.ffn = json.count({"intermediate_size"});
  model.length = json.count({"model_max_length"}, 4096);
  model.norm_epsilon = json.number({"rms_norm_eps"}, 1e-6);
  model.norm = NormKind::kRmsNorm;
  model.activation = Activation::kSwiglu;
  model.bias = false;
  return model;
}

TensorRules rules(const ModelConfig& model) {
  TensorRules r;
  r.rules.push_back({"embed.weight", {{"model.embed_tokens.weight"}}});
  const std::string ours = "layers.{}.", theirs = "model.layers.{}.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "input_layernorm");
  add_linear(r.rules, model, ours + "attention.qkv", theirs + "self_attn.W_pack");
  add_linear(r.rules, model, ours + "attention.out", theirs + "self_attn.o_proj");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "post_attention_layernorm");
  add_gated(r.rules, model, ours + "ffn.in", {theirs + "mlp.gate_proj", theirs + "mlp.up_proj"});
  add_linear(r.rules, model, ours + "ffn.out", theirs + "mlp.down_proj");
  add_norm(r.rules, model, "final_norm", "model.norm");
  add_output(r, model, "lm_head.weight", "model.embed_tokens.weight");
  return r;
}

}  // namespace

extern const Family family_baichuan{"Baichuan", {"baichuan"}, read, rules};

}  // namespace longshot
