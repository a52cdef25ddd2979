#include "evaluate/evaluate_run.h"

#include "base/error.h"
#include "base/records.h"

namespace longshot {
void EvaluationRequest::validate() const {
  require_usage(!data.empty(), "evaluation needs --data DIR, a token set made by `longshot prepare`");
  require_usage(losses.empty() || losses.ends_with(".csv") || losses.ends_with(".safetensors"),
                "--losses {}: the file must end in .csv or .safetensors", losses);
  if (!losses.empty()) require_writable(losses);
}

EvaluatedRun evaluate_run(Context& context, const LoadedModel& model, const EvaluationRequest& request,
                          const RunEvaluationCallbacks& callbacks, Communicator* world) {
  world ? world->on_root([&] { request.validate(); }) : request.validate();
  const TokenSet set(request.data);
  require_same_tokenizer(set, vocabulary_of(model.info, model.dir, request.run));
  const TokenFile& stream = set.split(request.config.split);
  EvaluationPlan plan = plan_evaluations(request.config, reach_of(*model.model), stream);
  plan.world = world;
  plan.ranks_per_window = request.ranks_per_window;
  const auto verify = [&] { stream.verify(callbacks.reading); };
  world ? world->on_each(verify) : verify();
  callbacks.on_start(stream, plan);
  EvaluatedRun result{
      .evaluated = evaluate(context, {*model.model, model.info.weights, model.info.step}, stream, plan, callbacks),
      .line = {}};
  const Evaluated& evaluated = result.evaluated;
  if (!evaluated.finished || (world && !world->is_root())) return result;
  result.line = {.model = request.run,
                 .position = model.info.model.position,
                 .train_length = model.info.model.length,
                 .results = evaluated.records,
                 .per_position = evaluated.per_position,
                 .decomposition = evaluated.decomposition};
  if (const RunDir run(request.run); fs::exists(run.config())) append_record(run.evals(), result.line.to_json());
  if (!request.losses.empty()) write_losses(request.losses, stream, evaluated.losses, callbacks.writing);
  return result;
}

}  // namespace longshot
