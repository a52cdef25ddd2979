// MPT: ALiBi, no biases, exact GELU. Slopes are 2^(-M h / H) with M "alibi_bias_max", 8 in the paper; M other than that is
// what llm-foundry trains with, and what transformers leaves out.
#include "base/error.h"
#include "formats/families.h"

namespace longshot {
namespace {

constexpr double kWidest = 1024;  // feed-forward width over model width

void read_attention(HfConfig json, ModelConfig& model) {
  if (!json.flag("alibi", true)) json.refuse("alibi", "of MPT the models with ALiBi are read");
  json.must_be("attn_type", "multihead_attention", "each head of an MPT has keys of its own here");
  json.must_be("qk_ln", false, "queries and keys are not normalised here");
  json.must_be("qk_gn", false, "queries and keys are not normalised here");
  json.must_be("prefix_lm", false, "every token sees those before it and no others");
  json.must_be("rope", false, "of MPT the models with ALiBi are read");
  json.must_be("sliding_window_size", -1, "attention has no window here");
  model.clip_qkv = json.number({"clip_qkv"}, 0);
  model.score_scale = json.number({"softmax_scale"}, 0);
  set_alibi_max(model, json.number({"alibi_bias_max"}, kPaperAlibiMax));
}

ModelConfig read(HfConfig& json) {
  ModelConfig model = plain_model(json, true);
  model.dim = json.count({"d_model", "hidden_size"});
  model.layers = json.count({"n_layers", "num_hidden_layers"});
  model.heads = json.count({"n_heads", "num_attention_heads"});
  model.length = json.count({"max_seq_len"}, 2048);
  const double ratio = json.number({"expansion_ratio"}, 4);
  require(ratio > 0 && ratio <= kWidest, "{}: \"expansion_ratio\" is {}, not above 0 and at most {}", json.origin(),
          ratio, kWidest);
  model.ffn = static_cast<int64_t>(ratio * static_cast<double>(model.dim));
  model.norm_epsilon = json.number({"layer_norm_epsilon"}, 1e-5);
  model.bias = !json.flag("no_bias", true);
  model.activation = Activation::kGeluExact;
  if (json.text("norm_type", "layernorm") != "layernorm")
    json.must_be("norm_type", "low_precision_layernorm", "norms of an MPT are layer norms here");
  if (json.has("logit_scale")) json.refuse("logit_scale", "the output is not scaled here");
  json.inside("ffn_config").must_be("ffn_type", "mptmlp", "the feed-forward part is a plain one here");
  if (json.inside("ffn_config").has("ffn_act_fn"))
    json.refuse("ffn_config", "the activation of an MPT is the exact GELU here");
  read_attention(json.inside("attn_config"), model);
  return model;
}

TensorRules rules(const ModelConfig& model) {
  TensorRules r;
  r.optional_prefix = "transformer.";
  r.rules.push_back({"embed.weight", {{"transformer.wte.weight"}}});
  const std::string ours = "layers.{}.", theirs = "transformer.blocks.{}.";
  add_norm(r.rules, model, ours + "attention_norm", theirs + "norm_1");
  add_linear(r.rules, model, ours + "attention.qkv", theirs + "attn.Wqkv");
  add_linear(r.rules, model, ours + "attention.out", theirs + "attn.out_proj");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "norm_2");
  add_linear(r.rules, model, ours + "ffn.in", theirs + "ffn.up_proj");
  add_linear(r.rules, model, ours + "ffn.out", theirs + "ffn.down_proj");
  add_norm(r.rules, model, "final_norm", "transformer.norm_f");
  add_output(r, model, "lm_head.weight", "transformer.wte.weight");
  return r;
}

}  // namespace

extern const Family family_mpt{"MPT", {"mpt"}, read, rules};

}  // namespace longshot
