// A fairseq checkpoint as a model of ours.
#pragma once
#include <string>

#include "formats/fairseq.h"
#include "model/transformer.h"

namespace longshot {

// `position` is the user's word: nothing in the file tells ALiBi from sinusoidal.
ModelConfig model_config_of(const FairseqCheckpoint& checkpoint, const std::string& position);

// Copies every tensor from the mapped file into the model. Both must have the same tensors.
void import_weights(const FairseqCheckpoint& checkpoint, Transformer& model);

}  // namespace longshot
