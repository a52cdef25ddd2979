#include "formats/fairseq_model.h"

#include <map>

#include "base/error.h"

namespace longshot {
namespace {

Activation activation_of(const FairseqConfig& config) {
  if (config.activation == "relu") return Activation::kRelu;
  // fairseq's plain "gelu" is the exact one; ours is the tanh form, which fairseq calls by these names.
  if (config.activation == "gelu_accurate" || config.activation == "gelu_fast") return Activation::kGelu;
  fail("the checkpoint's activation '{}' is not one this program has (relu, gelu_accurate, gelu_fast)",
       config.activation);
}

}  // namespace

ModelConfig model_config_of(const FairseqCheckpoint& checkpoint, const std::string& position) {
  const FairseqConfig& from = checkpoint.config();
  ModelConfig config;
  config.layers = from.layers;
  config.dim = from.dim;
  config.heads = from.heads;
  config.ffn = from.ffn;
  config.vocab = from.vocab;
  if (from.length > 0) config.length = from.length;
  config.position = position;
  config.final_norm = from.final_norm;
  config.activation = activation_of(from);
  config.tied = from.tied || from.is_adaptive();
  config.embed_scale = from.embed_scale;
  config.dropout = config.embedding_dropout = from.dropout;
  config.attention_dropout = from.attention_dropout;
  config.activation_dropout = from.activation_dropout;
  config.adaptive_cutoffs = from.cutoffs;
  if (from.is_adaptive()) {
    config.adaptive_factor = from.adaptive_factor;
    config.adaptive_dropout = from.adaptive_dropout;
  }
  config.validate();
  return config;
}

namespace {

// The checkpoint's tensors in the order of the model's.
std::vector<const FairseqTensor*> in_order(const FairseqCheckpoint& checkpoint, const Transformer& model) {
  std::map<std::string, const FairseqTensor*> left;
  for (const FairseqTensor& t : checkpoint.tensors()) left.emplace(t.name, &t);
  std::vector<const FairseqTensor*> ordered;
  for (const Tensor& tensor : model.parameters().tensors()) {
    const auto found = left.find(tensor.name);
    require(found != left.end(), "the checkpoint has no {}, which a model with position '{}' needs", tensor.name,
            model.config().position);
    require(found->second->shape == tensor.shape, "{} has the shape {} in the checkpoint but {} in the model",
            tensor.name, shape_text(found->second->shape), shape_text(tensor.shape));
    ordered.push_back(found->second);
    left.erase(found);
  }
  require(left.empty(), "the checkpoint's {} has no place in the model", left.empty() ? "" : left.begin()->first);
  return ordered;
}

}  // namespace

std::vector<StreamedTensor> weights_of(const FairseqCheckpoint& checkpoint, const ModelConfig& config) {
  std::vector<StreamedTensor> weights;
  for (const FairseqTensor* t : in_order(checkpoint, Transformer(config, false, Transformer::Memory::kReserved))) {
    weights.push_back({t->name, DType::kF32, t->shape, [t](const ByteSink& sink) {
                         std::vector<float> numbers(static_cast<size_t>(element_count(t->shape).value()));
                         copy_to_float(*t, numbers);
                         sink(std::as_bytes(std::span(numbers)));
                       }});
  }
  return weights;
}

void import_weights(const FairseqCheckpoint& checkpoint, Transformer& model) {
  const std::vector<const FairseqTensor*> tensors = in_order(checkpoint, model);
  for (size_t id = 0; id < tensors.size(); ++id) copy_to_float(*tensors[id], model.parameters().value(id));
}

}  // namespace longshot
