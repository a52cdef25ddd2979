#include "cli/model_options.h"

#include "base/error.h"
#include "cli/command.h"

namespace longshot {

void ModelOptions::fields(Options& o) {
  o.add("attention-epsilon", epsilon, "far keys left out below this share of attention; empty: the model's own");
  o.add("precision", precision, kPrecisions, "of the numbers that are multiplied, whatever the model was trained in");
  position.running_fields(o);
  o.add("threads", threads, "0: all cores, shared with other runs on this machine");
}

void ModelOptions::validate() const {
  require_usage(!epsilon || (*epsilon >= 0 && *epsilon < 1), "--attention-epsilon: {} is not in [0, 1)",
                epsilon.value_or(0));
}

ModelSession::ModelSession(const ModelOptions& options, const std::string& run, Progress& progress)
    : context(options.threads) {
  options.validate();
  context.set_precision(options.precision);
  if (options.threads == 0) context.share_cores();
  catch_stop_signals();
  loaded = load_model(run, watched(progress, "reading the model"));
  progress.clear();
  loaded.model->run_with(options.position);
  if (options.epsilon) loaded.model->set_attention_epsilon(*options.epsilon);
}

const Tokenizer& ModelSession::tokenizer() const {
  require(loaded.tokenizer != nullptr, "{}: no tokenizer travelled with this model", loaded.dir.string());
  return *loaded.tokenizer;
}

}  // namespace longshot
