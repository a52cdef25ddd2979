// Our models as Hugging Face's: which of them each family can say, and in which words of its config.json.
#pragma once
#include <span>
#include <string>

#include "formats/families.h"
#include "formats/model_form.h"

namespace longshot {

// In the order in which they are tried. A form has the name of its family's "model_type".
std::span<const ModelForm> hf_forms();
const Family& family_of(const ModelForm& form);

// config.json of a model that fits the form; types of numbers and special tokens are the caller's to add.
Json write_config(const ModelForm& form, const ModelConfig& model);

}  // namespace longshot
