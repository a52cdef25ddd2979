// Families of Hugging Face models: what their config.json means and which of their tensors are ours. A family is one file,
// family_x.cc, and a line in families.cc.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_config.h"
#include "formats/tensor_rules.h"
#include "model/config.h"

namespace longshot {

struct Family {
  const char* name;                            // "BLOOM"
  std::vector<std::string_view> model_types;   // of its config.json; the first is the one to write
  ModelConfig (*read_config)(HfConfig& json);  // what cannot be done is left among json.refusals()
  TensorRules (*rules)(const ModelConfig& model);
  // What only the tensors tell; null: nothing.
  void (*settle)(const SourceTensors& tensors, ModelConfig& model) = nullptr;
};

std::span<const Family* const> families();
// By "model_type"; an Error names those there are.
const Family& family_of(const HfConfig& json);

// The model's configuration, whole and checked. What it asks for and we cannot do stands in json.refusals() and was left
// out; then nothing was checked.
ModelConfig read_config(const Family& family, HfConfig& json);
// Throws with all that is refused.
void require_supported(const Family& family, const HfConfig& json);

// Parts that families share.
//
// A model without scaled embeddings: vocabulary and whether the output is the embedding's matrix.
ModelConfig plain_model(const HfConfig& json, bool tied);
// Half-split rotary positions from rope_parameters, rope_theta or the older keys; scaled ones are refused, and where heads
// are turned whole, a part of them. `fraction` and `base` are older names of the family's own. The model's dim and heads
// are known before.
struct RotaryKeys {
  const char *base, *fraction;
  double default_fraction;
  bool whole_heads;
};
void read_rotary(HfConfig& json, const RotaryKeys& keys, ModelConfig& model);
// Of each head so many elements are turned; and the fraction f of a head of D elements of which int(D f) = `turned` are.
int64_t rotated_dims(const ModelConfig& model);
double rotary_fraction(int64_t turned, int64_t head_dim);
// ALiBi's slopes where they are not the paper's: f of each of those.
void change_slopes(ModelConfig& model, const std::function<double(double)>& f);
// The same with slopes 2^(-M h / H): MPT's "alibi_bias_max".
void read_alibi_max(const HfConfig& json, const char* key, ModelConfig& model);
// BLOOM's tensors, with an embedding norm where the model has one.
TensorRules bloom_rules(const ModelConfig& model);
// The output's matrix: one of its own, or a copy of the embedding's that some files hold beside it.
void add_output(TensorRules& rules, const ModelConfig& model, const std::string& theirs, const std::string& embedding);

}  // namespace longshot
