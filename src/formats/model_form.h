// Which models a kind of file can hold, said in the model's options. A model that does not fit is refused with every option
// that would have to differ, and never written as something near.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"

namespace longshot {

// An option that is in neither list must be as a plain model has it: pre-norm, with a final norm, without scaled embeddings, and all
// else at its default. An option that is yet to be invented is so refused until a form knows it.
struct ModelForm {
  std::string name;                                      // "bloom"
  std::map<std::string, std::vector<std::string>> says;  // option: its values that the file has words for
  std::vector<std::string> any{};                        // options of which it has words for all values
  bool alibi_max = false;                                // a word for M where slopes are 2^(-M h / H)
};

struct Misfit {
  std::string option, value, needed;
};

// What keeps a model from being of a form; empty where it fits. Sizes, training's own options and those of other position
// methods do not matter, nor does the way a value is spelled: --ffn 64 with --dim 16 is --ffn 0.
std::vector<Misfit> misfits(const ModelForm& form, const ModelConfig& config);
// "--embed-scale is true, bloom needs false; --tied is false, bloom needs true"
std::string misfits_text(const ModelForm& form, const std::vector<Misfit>& found);

// The form of that name, or without one the first that fits. Error(kUsage) where there is none, with the misfits of the one
// that was named or is nearest. `what` begins the message: the run.
const ModelForm& fitting_form(std::span<const ModelForm> forms, const ModelConfig& config, const std::string& name,
                              const std::string& what);

}  // namespace longshot
