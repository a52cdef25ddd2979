#include "cli/model_options.h"

#include "base/error.h"
#include "cli/command.h"

namespace longshot {

namespace {

// kWeightTypes, or none.
struct StoredChoices {
  Choice<std::optional<WeightType>> all[1 + std::size(kWeightTypes)]{{"auto", {}}};
  StoredChoices() {
    for (size_t i = 0; i < std::size(kWeightTypes); ++i) all[i + 1] = {kWeightTypes[i].name, kWeightTypes[i].value};
  }
};
const StoredChoices kStored;

}  // namespace

void ModelOptions::fields(Options& o) {
  o.add("attention-epsilon", epsilon, "far keys left out below this share of attention; empty: the model's own");
  o.add("precision", precision, kPrecisions, "of the numbers that are multiplied, whatever the model was trained in");
  position.running_fields(o);
  o.add("weights", weights, kStored.all,
        "how matrices are stored: half and a quarter of the memory, and the faster text comes; auto: as --precision, "
        "and what an import has in 16 bits stays in its file");
  o.add("threads", threads, "0: all cores, shared with other runs on this machine");
}

void ModelOptions::validate() const {
  require_usage(!epsilon || (*epsilon >= 0 && *epsilon < 1), "--attention-epsilon: {} is not in [0, 1)",
                epsilon.value_or(0));
}

WeightStorage ModelOptions::storage() const {
  return {.type = weights.value_or(precision == Precision::kBf16 ? WeightType::kBf16 : WeightType::kF32),
          .map_narrow = !weights};
}

ModelSession::ModelSession(const ModelOptions& options, const std::string& run, Progress& progress)
    : context(options.threads) {
  options.validate();
  context.set_precision(options.precision);
  if (options.threads == 0) context.share_cores();
  catch_stop_signals();
  loaded = load_model(run, watched(progress, "reading the model"), options.storage());
  progress.clear();
  loaded.model->run_with(options.position);
  const Parameters& parameters = loaded.model->parameters();
  if (const size_t mapped = parameters.mapped_bytes(); mapped > 0) {
    progress.note(fmt::format("weights of 16 bits stay in their file: {}, beside it {}",
                              bytes_text(static_cast<double>(mapped)),
                              bytes_text(static_cast<double>(parameters.bytes()))));
  } else if (const WeightType type = options.storage().type; type != WeightType::kF32) {
    progress.note(fmt::format("weights in {}: {}, in f32 {}", name_of(kWeightTypes, type),
                              bytes_text(static_cast<double>(parameters.bytes())),
                              bytes_text(4.0 * static_cast<double>(parameters.count()))));
  }
  if (options.epsilon) loaded.model->set_attention_epsilon(*options.epsilon);
}

}  // namespace longshot
