#include "formats/hf_forms.h"

#include <algorithm>

#include "base/error.h"
#include "position/rotary.h"

namespace longshot {
namespace {

using Values = std::vector<std::string>;

const Values kYes{"true"}, kNo{"false"}, kPlainActivations{"gelu", "gelu-exact", "relu"};

Json begin(const char* type, const char* architecture, const ModelConfig& model) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", model.vocab},
          {"tie_word_embeddings", model.tied},
          {"use_cache", true}};
}

const char* activation_name(Activation kind) {
  static constexpr Choice<Activation> kNames[] = {
      {"gelu_new", Activation::kGelu}, {"gelu", Activation::kGeluExact}, {"relu", Activation::kRelu}};
  return name_of(kNames, kind);
}

double rotary_base(const ModelConfig& model) { return model.position_options.of<RotaryOptions>().base; }

// transformers turns int(D * factor) elements.
double rotary_factor(const ModelConfig& model) { return rotary_fraction(rotated_dims(model), model.head_dim()); }

Json rope(const ModelConfig& model) {
  return {
      {"rope_type", "default"}, {"rope_theta", rotary_base(model)}, {"partial_rotary_factor", rotary_factor(model)}};
}

Json bloom(const ModelConfig& model) {
  Json json = begin("bloom", "BloomForCausalLM", model);
  json.update({{"hidden_size", model.dim},
               {"n_layer", model.layers},
               {"n_head", model.heads},
               {"seq_length", model.length},
               {"layer_norm_epsilon", model.norm_epsilon},
               {"apply_residual_connection_post_layernorm", false},
               {"hidden_dropout", 0.0},
               {"attention_dropout", 0.0},
               {"pretraining_tp", 1},
               {"slow_but_exact", false}});
  return json;
}

// llama.cpp's converter wants the three keys of attn_config that could be left out.
Json mpt(const ModelConfig& model) {
  Json attention{{"attn_type", "multihead_attention"},
                 {"attn_pdrop", 0},
                 {"attn_impl", "torch"},
                 {"clip_qkv", nullptr},
                 {"softmax_scale", nullptr},
                 {"prefix_lm", false},
                 {"qk_ln", false},
                 {"alibi", true},
                 {"alibi_bias_max", 8}};
  if (model.clip_qkv > 0) attention["clip_qkv"] = model.clip_qkv;
  if (model.score_scale > 0) attention["softmax_scale"] = model.score_scale;
  Json json = begin("mpt", "MptForCausalLM", model);
  json.update({{"d_model", model.dim},
               {"n_layers", model.layers},
               {"n_heads", model.heads},
               {"expansion_ratio", 4},
               {"max_seq_len", model.length},
               {"layer_norm_epsilon", model.norm_epsilon},
               {"learned_pos_emb", false},
               {"no_bias", true},
               {"norm_type", "low_precision_layernorm"},
               {"emb_pdrop", 0.0},
               {"resid_pdrop", 0.0},
               {"attn_config", attention}});
  return json;
}

Json gpt_neox(const ModelConfig& model) {
  Json json = begin("gpt_neox", "GPTNeoXForCausalLM", model);
  json.update({{"hidden_size", model.dim},
               {"num_hidden_layers", model.layers},
               {"num_attention_heads", model.heads},
               {"intermediate_size", model.ffn_dim()},
               {"hidden_act", activation_name(model.activation)},
               {"max_position_embeddings", model.length},
               {"layer_norm_eps", model.norm_epsilon},
               {"use_parallel_residual", model.parallel_residual},
               {"attention_bias", true},
               {"rotary_emb_base", rotary_base(model)},
               {"rotary_pct", rotary_factor(model)},
               {"rope_parameters", rope(model)}});
  return json;
}

Json llama(const ModelConfig& model) {
  Json json = begin("llama", "LlamaForCausalLM", model);
  json.update({{"hidden_size", model.dim},
               {"num_hidden_layers", model.layers},
               {"num_attention_heads", model.heads},
               {"num_key_value_heads", model.key_heads()},
               {"head_dim", model.head_dim()},
               {"intermediate_size", model.ffn_dim()},
               {"hidden_act", "silu"},
               {"max_position_embeddings", model.length},
               {"rms_norm_eps", model.norm_epsilon},
               {"attention_bias", false},
               {"mlp_bias", false},
               {"rope_theta", rotary_base(model)},
               {"rope_parameters", rope(model)}});
  return json;
}

Json gpt2(const ModelConfig& model) {
  Json json = begin("gpt2", "GPT2LMHeadModel", model);
  json.update({{"n_embd", model.dim},
               {"n_layer", model.layers},
               {"n_head", model.heads},
               {"n_inner", model.ffn_dim()},
               {"n_positions", model.length},
               {"n_ctx", model.length},
               {"activation_function", activation_name(model.activation)},
               {"layer_norm_epsilon", model.norm_epsilon},
               {"scale_attn_weights", true},
               {"scale_attn_by_inverse_layer_idx", false},
               {"embd_pdrop", 0.0},
               {"resid_pdrop", 0.0},
               {"attn_pdrop", 0.0}});
  return json;
}

struct Writer {
  const char* name;
  Json (*write)(const ModelConfig& model);
};
constexpr Writer kWriters[] = {
    {"bloom", bloom}, {"mpt", mpt}, {"gpt_neox", gpt_neox}, {"llama", llama}, {"gpt2", gpt2}};

}  // namespace

std::span<const ModelForm> hf_forms() {
  static const std::vector<ModelForm> kForms{
      {.name = "bloom",
       .says = {{"position", {"alibi"}},
                {"activation", {"gelu"}},
                {"bias", kYes},
                {"tied", kYes},
                {"embedding-norm", kYes}},
       .any = {"norm-epsilon"}},
      // alibi_bias_max is not among its words: transformers takes 8, whatever the key says.
      {.name = "mpt",
       .says = {{"position", {"alibi"}}, {"activation", {"gelu-exact"}}, {"bias", kNo}, {"tied", kYes}},
       .any = {"norm-epsilon", "clip-qkv", "score-scale"}},
      {.name = "gpt_neox",
       .says =
           {{"position", {"rotary"}}, {"rotary-style", {"half"}}, {"activation", kPlainActivations}, {"bias", kYes}},
       .any = {"norm-epsilon", "ffn", "tied", "parallel-residual", "rotary-base", "rotary-fraction"}},
      {.name = "llama",
       .says = {{"position", {"rotary"}},
                {"rotary-style", {"half"}},
                {"norm", {"rmsnorm"}},
                {"activation", {"swiglu"}},
                {"bias", kNo}},
       .any = {"norm-epsilon", "ffn", "tied", "kv-heads", "rotary-base"}},
      {.name = "gpt2",
       .says = {{"position", {"learned"}}, {"activation", kPlainActivations}, {"bias", kYes}, {"tied", kYes}},
       .any = {"norm-epsilon", "ffn"}},
  };
  return kForms;
}

const Family& family_of(const ModelForm& form) {
  for (const Family* family : families()) {
    if (family->model_types.front() == form.name) return *family;
  }
  fail("no family of Hugging Face models is called '{}'", form.name);
}

Json write_config(const ModelForm& form, const ModelConfig& model) {
  const auto* writer = std::ranges::find(kWriters, form.name, &Writer::name);
  require(writer != std::end(kWriters), "nothing writes the config.json of a '{}'", form.name);
  return writer->write(model);
}

}  // namespace longshot
