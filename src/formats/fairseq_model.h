// A fairseq checkpoint as a model of ours.
#pragma once
#include <string>

#include "formats/fairseq.h"
#include "formats/safetensors.h"
#include "model/transformer.h"

namespace longshot {

// `position` is the user's word: nothing in the file tells ALiBi from sinusoidal.
ModelConfig model_config_of(const FairseqCheckpoint& checkpoint, const std::string& position);

// Every tensor of the model, in its order, made while it is written. Both must have the same tensors.
std::vector<StreamedTensor> weights_of(const FairseqCheckpoint& checkpoint, const ModelConfig& config);
// The same copied into a model.
void import_weights(const FairseqCheckpoint& checkpoint, Transformer& model);

}  // namespace longshot
