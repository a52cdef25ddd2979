// BLOOM: ALiBi, an embedding norm, and query, key and value of a head side by side.
#include "formats/families.h"

namespace longshot {
namespace {

ModelConfig read(HfConfig& json) {
  json.must_be("apply_residual_connection_post_layernorm", false, "the residual stream is the norm's input here");
  if (json.flag("slow_but_exact", false) && json.count({"pretraining_tp"}, 1) > 1)
    json.refuse("slow_but_exact",
                "transformers then leaves out two biases of every block; false reads what was trained");
  ModelConfig model = plain_model(json, true);
  model.dim = json.count({"n_embed", "hidden_size"});
  model.layers = json.count({"n_layer", "num_hidden_layers"});
  model.heads = json.count({"n_head", "num_attention_heads"});
  model.length = json.count({"seq_length"}, 2048);
  model.norm_epsilon = json.number({"layer_norm_epsilon"}, 1e-5);
  model.embedding_norm = true;
  model.activation = Activation::kGelu;
  return model;
}

}  // namespace

TensorRules bloom_rules(const ModelConfig& model) {
  TensorRules r;
  r.optional_prefix = "transformer.";
  r.rules.push_back({"embed.weight", {{"transformer.word_embeddings.weight"}}});
  if (model.embedding_norm) add_norm(r.rules, model, "embed_norm", "transformer.word_embeddings_layernorm");
  const std::string ours = "layers.{}.", theirs = "transformer.h.{}.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "input_layernorm");
  add_linear(r.rules, model, ours + "attention.qkv", theirs + "self_attention.query_key_value",
             Arrangement::kQkvByHead);
  add_linear(r.rules, model, ours + "attention.out", theirs + "self_attention.dense");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "post_attention_layernorm");
  add_linear(r.rules, model, ours + "ffn.in", theirs + "mlp.dense_h_to_4h");
  add_linear(r.rules, model, ours + "ffn.out", theirs + "mlp.dense_4h_to_h");
  add_norm(r.rules, model, "final_norm", "transformer.ln_f");
  add_output(r, model, "lm_head.weight", "transformer.word_embeddings.weight");
  return r;
}

extern const Family family_bloom{"BLOOM", {"bloom"}, read, bloom_rules};

}  // namespace longshot
