// MPT: ALiBi, no biases, exact GELU. Slopes are 2^(-M h / H) with M "alibi_bias_max", 8 in the paper; M other than that is
// what llm-foundry trains with, and what transformers leaves out.
#include <algorithm>

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
  if (json.has("attn_logit_softcapping")) json.refuse("attn_logit_softcapping", "scores are not capped here");
  if (json.has("reuse_kv_layer_idx")) json.refuse("reuse_kv_layer_idx", "layers share no keys and values here");
  model.clip_qkv = json.number({"clip_qkv"}, 0);
  model.score_scale = json.number({"softmax_scale"}, 0);
  read_alibi_max(json, "alibi_bias_max", model);
}

void read_feed_forward(HfConfig json, ModelConfig& model) {
  json.must_be("ffn_type", "mptmlp", "the feed-forward part is a plain one here");
  model.ffn = json.count({"ffn_hidden_size"}, model.ffn);
  HfConfig activation = json.inside("ffn_act_fn");
  activation.must_be("name", "gelu", "the activation of an MPT is the exact GELU here");
  activation.must_be("approximate", "none", "the activation of an MPT is the exact GELU here");
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
  require(model.ffn > 0, "{}: \"expansion_ratio\" is {}, which leaves a width of 0", json.origin(), ratio);
  model.norm_epsilon = json.number({"layer_norm_epsilon", "norm_eps"}, 1e-5);
  model.bias = !json.flag("no_bias", true);
  model.activation = Activation::kGeluExact;
  if (json.text("norm_type", "layernorm") != "layernorm")
    json.must_be("norm_type", "low_precision_layernorm", "norms of an MPT are layer norms here");
  if (json.has("logit_scale")) json.refuse("logit_scale", "the output is not scaled here");
  if (json.has("final_logit_softcapping")) json.refuse("final_logit_softcapping", "the output is not capped here");
  if (json.has("block_overrides")) json.refuse("block_overrides", "all blocks are alike here");
  read_feed_forward(json.inside("ffn_config"), model);
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

// transformers ignores "no_bias": what it wrote has no biases, whatever the key says.
void settle(const SourceTensors& tensors, ModelConfig& model) {
  const auto is_bias = [](const SourceTensor& t) { return t.name.ends_with(".bias"); };
  if (std::ranges::none_of(tensors.all(), is_bias)) model.bias = false;
}

}  // namespace

extern const Family family_mpt{"MPT", {"mpt"}, read, rules, settle};

}  // namespace longshot
