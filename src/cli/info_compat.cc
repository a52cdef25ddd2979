#include "cli/info_compat.h"

#include <algorithm>

#include "cli/command.h"
#include "formats/gguf_forms.h"
#include "formats/hf_forms.h"

namespace longshot {
namespace {

struct Treatment {
  const char *program, *form, *position;
  const char *slopes, *precision, *order;
};

constexpr const char* kGgmlPrecision = "f32 with -fa off -ctk f32 -ctv f32; GELU from a table of f16";
constexpr const char *kPaperSlopes = "the paper's", *kNone = "-";
constexpr const char *kAfter = "added to scaled scores", *kTurned = "queries and keys are turned before";
constexpr const char* kRoundedTurns = "angles in f32, their cosines and sines rounded to the weights' type";
// What was read in their sources, or measured (docs/interop.md).
constexpr Treatment kTreatments[] = {
    {"transformers", "bloom", "alibi", kPaperSlopes, "slope * key position, rounded to the weights' type", kAfter},
    {"transformers", "mpt", "alibi", "the paper's, whatever alibi_bias_max says", "f32; fails beyond max_seq_len",
     kAfter},
    {"transformers", "falcon", "alibi", "rounded to bf16", "slope * key position, rounded to bf16",
     "added before the division by sqrt(D); twice by eager attention in 5.23"},
    {"llm-foundry", "mpt", "alibi", "2^(-alibi_bias_max h / H)", "f32", kAfter},
    {"llama.cpp", "bloom", "alibi", kPaperSlopes, kGgmlPrecision, kAfter},
    {"llama.cpp", "mpt", "alibi", "2^(-max_alibi_bias h / H)", kGgmlPrecision, kAfter},
    {"llama.cpp", "falcon", "alibi", "none: it always rotates", kNone, kNone},
    {"llama.cpp", "gptneox", "rotary", kNone, kGgmlPrecision, kTurned},
    {"llama.cpp", "llama", "rotary", kNone, "f32 with -fa off -ctk f32 -ctv f32", kTurned},
    {"llama.cpp", "gpt2", "learned", kNone, kGgmlPrecision, "added to the embedding"},
    {"transformers", "gpt_neox", "rotary", kNone, kRoundedTurns, kTurned},
    {"transformers", "llama", "rotary", kNone, kRoundedTurns, kTurned},
    {"transformers", "gpt2", "learned", kNone, "no positions beyond n_positions", "added to the embedding"},
};

// "yes", or the options that would have to differ.
std::string fit_text(const Treatment& treatment, const ModelConfig& model) {
  const auto forms = treatment.program == std::string("llama.cpp") ? gguf_forms() : hf_forms();
  const auto form = std::ranges::find(forms, treatment.form, &ModelForm::name);
  if (form == forms.end()) return "no: this form is read, not written";
  const std::vector<Misfit> found = misfits(*form, model);
  return found.empty() ? "yes" : "no: " + misfits_text(*form, found);
}

}  // namespace

void print_compat(const ModelConfig& model, bool json) {
  Json rows = Json::array();
  for (const Treatment& t : kTreatments) {
    if (model.position != t.position) continue;
    rows.push_back({{"program", t.program},
                    {"form", t.form},
                    {"slopes", t.slopes},
                    {"precision", t.precision},
                    {"order", t.order},
                    {"holds_this_model", fit_text(t, model)}});
  }
  if (json) {
    show_json(rows, 2);
    return;
  }
  if (rows.empty()) fmt::print("position {}: no known program has models of it\n", model.position);
  for (const Json& row : rows) {
    fmt::print("{} as {}\n", row["program"].get<std::string>(), row["form"].get<std::string>());
    for (const auto& [key, label] : {std::pair("slopes", "slopes"), std::pair("precision", "precision"),
                                     std::pair("order", "order"), std::pair("holds_this_model", "this model")})
      fmt::print("  {:<12}{}\n", label, row[key].get<std::string>());
  }
}

}  // namespace longshot
