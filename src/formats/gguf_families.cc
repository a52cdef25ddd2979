#include "formats/gguf_families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "formats/families.h"
#include "position/rotary.h"

namespace longshot {
namespace {

constexpr const char *kTokens = "tokenizer.ggml.tokens", *kOutput = "output.weight", *kEmbedding = "token_embd.weight";
constexpr int64_t kAlibiLayers = 40;  // of Baichuan

// Keys of every architecture, behind its name. The last three say nothing about what is computed.
const std::vector<std::string_view> kCommonKeys{"context_length",
                                                "embedding_length",
                                                "block_count",
                                                "feed_forward_length",
                                                "attention.head_count",
                                                "attention.head_count_kv",
                                                "attention.key_length",
                                                "attention.value_length",
                                                "attention.layer_norm_epsilon",
                                                "attention.layer_norm_rms_epsilon",
                                                "attention.causal",
                                                "expert_count",
                                                "expert_used_count",
                                                "vocab_size",
                                                "tensor_data_layout",
                                                "rope.scaling.finetuned"};
const std::vector<std::string_view> kRotaryKeys{"rope.dimension_count",
                                                "rope.freq_base",
                                                "rope.scaling.type",
                                                "rope.scaling.factor",
                                                "rope.scale_linear",
                                                "rope.scaling.attn_factor",
                                                "rope.scaling.original_context_length"};

std::vector<std::string_view> with_rotary(std::vector<std::string_view> keys) {
  keys.insert(keys.end(), kRotaryKeys.begin(), kRotaryKeys.end());
  return keys;
}

// An output matrix that is there and no copy of the embedding's.
bool has_output_of_its_own(const Gguf& file) {
  const GgufTensor *output = file.find(kOutput), *embedding = file.find(kEmbedding);
  if (!output || !embedding) return output != nullptr;
  return output->type != embedding->type || output->shape != embedding->shape ||
         std::memcmp(output->bytes.data(), embedding->bytes.data(), output->bytes.size()) != 0;
}

void need(HfConfig& keys, const char* key, const std::string& why) {
  if (!keys.has(key)) keys.refuse(key, why);
}

ModelConfig plain(HfConfig& keys, const Gguf& file, const char* epsilon = "attention.layer_norm_epsilon") {
  ModelConfig model = plain_model(keys, !has_output_of_its_own(file));
  model.length = keys.count({"context_length"});
  model.dim = keys.count({"embedding_length"});
  model.layers = keys.count({"block_count"});
  model.ffn = keys.count({"feed_forward_length"});
  model.heads = keys.count({"attention.head_count"});
  model.kv_heads = keys.count({"attention.head_count_kv"}, model.heads);
  model.activation = Activation::kGelu;
  need(keys, epsilon, "what is added to the variance that a norm divides by is not known");
  model.norm_epsilon = keys.number({epsilon}, model.norm_epsilon);
  for (const char* key : {"attention.key_length", "attention.value_length"}) {
    if (keys.count({key}, model.head_dim()) != model.head_dim())
      keys.refuse(key,
                  fmt::format("heads are embedding_length / attention.head_count = {} wide here", model.head_dim()));
  }
  keys.must_be("attention.causal", true, "every token sees those before it and no others");
  keys.must_be("expert_count", 0, "the feed-forward part has no experts here");
  keys.must_be("expert_used_count", 0, "the feed-forward part has no experts here");
  require(static_cast<size_t>(model.layers) <= file.tensors().size(),
          "{}: claims {} layers, but has only {} tensors. Is a part of the model missing?", keys.origin(), model.layers,
          file.tensors().size());
  return model;
}

// RMSNorm, SwiGLU and no biases.
ModelConfig gated(HfConfig& keys, const Gguf& file) {
  ModelConfig model = plain(keys, file, "attention.layer_norm_rms_epsilon");
  model.norm = NormKind::kRmsNorm;
  model.activation = Activation::kSwiglu;
  model.bias = false;
  return model;
}

// Rotary positions in halves, on the first rope.dimension_count of every head. Scaled ones are refused: a factor of 0 is none.
void read_rotary(HfConfig& keys, ModelConfig& model) {
  const char* why = "rotary positions are not scaled here";
  if (const std::string type = keys.text("rope.scaling.type", "none"); type != "none" && type != "linear")
    keys.refuse("rope.scaling.type", why);
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (const double factor = keys.number({key}, 1); factor != 1 && factor != 0) keys.refuse(key, why);
  }
  keys.must_be("rope.scaling.attn_factor", 1, why);
  model.position = "rotary";
  RotaryOptions& rotary = model.position_options.of<RotaryOptions>();
  rotary.style = RotaryOptions::Style::kHalf, rotary.base = keys.number({"rope.freq_base"}, 10000);
  const int64_t width = model.head_dim(), dims = keys.count({"rope.dimension_count"}, std::max<int64_t>(width, 1));
  if (dims > width || dims % 2 != 0) {
    keys.refuse("rope.dimension_count", fmt::format("of heads of {} an even number can be turned", width));
  } else {
    rotary.fraction = rotary_fraction(dims, width);
  }
}

ModelConfig bloom(HfConfig& keys, const Gguf& file) {
  ModelConfig model = plain(keys, file);
  model.embedding_norm = true;
  return model;
}

ModelConfig mpt(HfConfig& keys, const Gguf& file) {
  ModelConfig model = plain(keys, file);
  model.bias = file.find("blk.0.attn_qkv.bias") != nullptr;
  model.clip_qkv = std::max(keys.number({"attention.clamp_kqv"}, 0), 0.0);
  if (keys.number({"attention.max_alibi_bias"}, 0) <= 0) {
    keys.refuse("attention.max_alibi_bias", "of MPT the models with ALiBi are read");
  } else {
    read_alibi_max(keys, "attention.max_alibi_bias", model);
  }
  return model;
}

ModelConfig gpt2(HfConfig& keys, const Gguf& file) {
  ModelConfig model = plain(keys, file);
  model.position = "learned";
  return model;
}

ModelConfig gpt_neox(HfConfig& keys, const Gguf& file) {
  ModelConfig model = plain(keys, file);
  need(keys, "use_parallel_residual", "a GPT-NeoX says whether both branches of a block read its input");
  model.parallel_residual = keys.flag("use_parallel_residual", true);
  read_rotary(keys, model);
  return model;
}

ModelConfig llama(HfConfig& keys, const Gguf& file) {
  ModelConfig model = gated(keys, file);
  read_rotary(keys, model);
  if (keys.count({"rope.dimension_count"}, model.head_dim()) != model.head_dim())
    keys.refuse("rope.dimension_count", fmt::format("a Llama turns all {} of a head", model.head_dim()));
  if (file.find("rope_freqs.weight"))
    keys.refuse("the tensor \"rope_freqs.weight\" scales rotary positions, which is not done here");
  return model;
}

ModelConfig baichuan(HfConfig& keys, const Gguf& file) {
  ModelConfig model = gated(keys, file);
  if (model.layers != kAlibiLayers)
    keys.refuse("block_count", fmt::format("a Baichuan of {} layers has ALiBi (13B) and is read; that of 32 is rotary "
                                           "(7B), and of others llama.cpp computes no positions at all",
                                           kAlibiLayers));
  return model;
}

// What the file says, for HfConfig: an object of the architecture's keys inside one of those that all files have.
JsonTree object_of(const Gguf& file, const std::string& architecture) {
  JsonTree object = JsonTree::object(), &own = object[architecture] = JsonTree::object();
  const std::string prefix = architecture + ".";
  for (const GgufKey& key : file.keys()) {
    if (key.name.starts_with(prefix)) own[std::string(key.name.substr(prefix.size()))] = gguf_value(file, key);
    if (key.name == "general.type" || key.name == "split.count") object[std::string(key.name)] = gguf_value(file, key);
  }
  // As many embeddings as tokens: a vocabulary without a list of them says how large it is.
  if (const GgufKey* tokens = file.find_key(kTokens)) own["vocab_size"] = tokens->count;
  return object;
}

void refuse_unknown_keys(const GgufFamily& family, const Gguf& file, HfConfig& keys) {
  const std::string prefix = std::string(family.architecture) + ".";
  for (const GgufKey& key : file.keys()) {
    if (!key.name.starts_with(prefix)) continue;
    const std::string_view name = key.name.substr(prefix.size());
    const auto among = [&](const std::vector<std::string_view>& known) {
      return std::ranges::find(known, name) != known.end();
    };
    if (!among(kCommonKeys) && !among(family.keys))
      keys.refuse(fmt::format("\"{}\" is {}: this program does not know what it asks for", shown(key.name),
                              shown(dump_json(gguf_value(file, key)))));
  }
}

void refuse_unread_types(const Gguf& file, HfConfig& keys) {
  std::vector<std::string_view> types;
  for (const GgufTensor& t : file.tensors()) {
    const std::string_view name = ggml_layout(t.type).name;
    if (!is_readable(t.type) && std::ranges::find(types, name) == types.end()) types.push_back(name);
    if (is_readable(t.type) && !plain_dtype(t.type) && t.shape.size() == 1)
      keys.refuse(fmt::format("the vector \"{}\" is {}: blocks are read of matrices", shown(t.name), name));
  }
  if (!types.empty())
    keys.refuse(fmt::format("tensors of {}: F32, F16, BF16, Q8_0, Q4_K and Q6_K are read", fmt::join(types, ", ")));
}

}  // namespace

std::span<const GgufFamily> gguf_families() {
  static const std::vector<GgufFamily> kAll{
      {"Baichuan", "baichuan", {"rope.dimension_count", "rope.freq_base"}, baichuan},
      {"BLOOM", "bloom", {}, bloom},
      {"GPT-2", "gpt2", {}, gpt2},
      {"GPT-NeoX", "gptneox", with_rotary({"use_parallel_residual"}), gpt_neox},
      {"Llama", "llama", with_rotary({}), llama},
      {"MPT", "mpt", {"attention.clamp_kqv", "attention.max_alibi_bias"}, mpt}};
  return kAll;
}

const GgufFamily& gguf_family_of(const Gguf& file) {
  const std::string name = file.path().string();
  const auto architecture = file.text("general.architecture");
  require(architecture.has_value(), "{}: has no key \"general.architecture\". Is it a model?", name);
  std::vector<std::string_view> known;
  for (const GgufFamily& family : gguf_families()) {
    if (family.architecture == *architecture) return family;
    known.push_back(family.architecture);
  }
  fail("{}: the architecture is \"{}\", which this program does not read{}. It reads: {}", name, shown(*architecture),
       *architecture == "falcon" ? " (llama.cpp's falcon always rotates and has no biases: a Falcon-RW with ALiBi is "
                                   "imported from its Hugging Face directory)"
                                 : "",
       fmt::join(known, ", "));
}

TensorRules gguf_rules(const ModelConfig& model) {
  TensorRules r;
  const std::string ours = "layers.{}.", theirs = "blk.{}.";
  const bool apart = model.activation == Activation::kSwiglu;
  r.rules.push_back({"embed.weight", {{kEmbedding}}});
  if (model.position == "learned") r.rules.push_back({"position.embedding", {{"position_embd.weight"}}});
  if (model.embedding_norm) add_norm(r.rules, model, "embed_norm", "token_embd_norm");
  add_norm(r.rules, model, ours + "attention_norm", theirs + "attn_norm");
  if (apart) {
    r.rules.push_back({ours + "attention.qkv.weight",
                       {{theirs + "attn_q.weight", Arrangement::kRotaryPairs, model.dim},
                        {theirs + "attn_k.weight", Arrangement::kRotaryPairs, model.key_dim()},
                        {theirs + "attn_v.weight", Arrangement::kSame, model.key_dim()}}});
  } else {
    add_linear(r.rules, model, ours + "attention.qkv", theirs + "attn_qkv");
  }
  add_linear(r.rules, model, ours + "attention.out", theirs + "attn_output");
  add_norm(r.rules, model, ours + "ffn_norm", theirs + "ffn_norm");
  if (apart) {
    add_gated(r.rules, model, ours + "ffn.in", {theirs + "ffn_gate", theirs + "ffn_up"});
  } else {
    add_linear(r.rules, model, ours + "ffn.in", theirs + "ffn_up");
  }
  add_linear(r.rules, model, ours + "ffn.out", theirs + "ffn_down");
  add_norm(r.rules, model, "final_norm", "output_norm");
  add_output(r, model, kOutput, kEmbedding);
  return r;
}

JsonTree gguf_value(const Gguf& file, const GgufKey& key) {
  switch (key.type) {
    case GgufType::kText:
      return printable(*file.text(key.name));
    case GgufType::kBool:
      return *file.boolean(key.name);
    case GgufType::kList:
      return {{"list", gguf_type_name(key.element)}, {"count", key.count}};
    case GgufType::kF32:
      // The shortest decimal number that it is: 1e-5 was meant, not 9.9999997e-6.
      return std::stod(fmt::format("{}", static_cast<float>(*file.number(key.name))));
    case GgufType::kF64:
      return *file.number(key.name);
    case GgufType::kU64:
      if (*file.number(key.name) > static_cast<double>(INT64_MAX)) return *file.number(key.name);
      return *file.integer(key.name);
    default:
      return *file.integer(key.name);
  }
}

GgufModel read_gguf_model(const Gguf& file) {
  const GgufFamily& family = gguf_family_of(file);
  const std::string architecture(family.architecture);
  HfConfig all(object_of(file, architecture), file.path().string());
  all.must_be("general.type", "model", "only whole models are read");
  if (all.has("split.count"))
    all.must_be("split.count", 1, "of models in parts none are read: llama-gguf-split --merge");
  GgufModel model{&family, all.inside(architecture.c_str()), {}};
  model.config = family.read_config(model.keys, file);
  refuse_unknown_keys(family, file, model.keys);
  refuse_unread_types(file, model.keys);
  if (!model.keys.refusals().empty()) return model;
  try {
    model.config.validate();
  } catch (const Error& e) {
    fail("{}: {}", file.path().string(), e.what());
  }
  return model;
}

void require_supported(const GgufModel& model) {
  require(model.keys.refusals().empty(), "{}: this {} asks for what this program does not do: {}", model.keys.origin(),
          model.family->name, fmt::join(model.keys.refusals(), "; "));
}

}  // namespace longshot
