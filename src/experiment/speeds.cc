#include "experiment/speeds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/context.h"
#include "base/load.h"
#include "run/loaded_model.h"
#include "train/trainer.h"

namespace longshot {
namespace {

constexpr int kPasses = 3;  // of an evaluation, of which the fastest counts

// One kind of work of one model: what it yielded in each round.
struct Series {
  SpeedWork work = SpeedWork::kEvaluation;
  int64_t length = 0;
  std::vector<double> rates{};  // tokens per second
};

double evaluation_rate(Context& context, Transformer& model, const Stretch& stretch, const ScoreOptions& options) {
  double best = INFINITY;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Scores scores = score_stream(context, model, stretch, options);
    if (!scores.finished) throw Stopped();
    best = std::min(best, scores.seconds);
  }
  return static_cast<double>(stretch.tokens) / std::max(best, 1e-9);
}

std::vector<Series> series_of(const ModelPlan& plan) {
  std::vector<Series> all{{SpeedWork::kTraining, plan.model.length}};
  for (const Evaluation& e : plan.tests.evaluations) {
    if (e.mode == WindowMode::kNonoverlapping && e.asked_for) all.push_back({SpeedWork::kEvaluation, e.windows.window});
  }
  return all;
}

void measure(Context& context, const TokenSet& tokens, const SpeedSubject& subject, std::vector<Series>& all,
             const Watch& watch) {
  const ModelPlan& plan = subject.plan;
  const PrecisionScope precision(context, plan.train.precision);
  const TokenFile& text = tokens.split(plan.tests.split);
  LoadedModel loaded = load_model(subject.checkpoint, watch);
  loaded.model->run_with(plan.running);
  ScoreOptions options{.batch_tokens = plan.tests.batch_tokens, .document_mask = plan.model.document_mask};
  options.should_stop = watch.should_stop;
  for (Series& series : all) {
    if (watch.should_stop()) throw Stopped();
    if (series.work == SpeedWork::kTraining) {
      Transformer model(plan.model, true, Transformer::Memory::kMemory,
                        Trainer::shared_gradients(plan.train, plan.model.length, nullptr));
      model.initialize(context, plan.train.seed);
      Trainer trainer(context, {.model = model, .tokens = tokens.split("train")}, plan.train);
      series.rates.push_back(static_cast<double>(trainer.tokens_per_step()) / trainer.seconds_per_step());
    } else {
      const int64_t wanted = std::max(series.length, plan.tests.batch_tokens);
      const int64_t count = std::min(wanted, text.size()) / series.length * series.length;
      series.rates.push_back(
          evaluation_rate(context, *loaded.model, {text, {series.length, series.length}, count}, options));
    }
  }
}

SpeedRecord record_of(Series series, const std::optional<double>& others) {
  std::ranges::sort(series.rates);
  return {.work = series.work,
          .length = series.length,
          .median = series.rates[series.rates.size() / 2],
          .low = series.rates.front(),
          .high = series.rates.back(),
          .rounds = static_cast<int64_t>(series.rates.size()),
          .other_load = others};
}

}  // namespace

std::map<std::string, std::vector<SpeedRecord>> measure_speeds(Context& context, const TokenSet& tokens,
                                                               const std::vector<SpeedSubject>& subjects,
                                                               int64_t rounds, const Watch& watch) {
  std::vector<std::vector<Series>> all;
  for (const SpeedSubject& subject : subjects) all.push_back(series_of(subject.plan));
  const LoadMeter load;
  double done = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < subjects.size(); ++s) {
      watch.at(done++ / static_cast<double>(rounds * static_cast<int64_t>(subjects.size())));
      measure(context, tokens, subjects[s], all[s], watch);
    }
  }
  const std::optional<double> others = load.others();
  std::map<std::string, std::vector<SpeedRecord>> records;
  for (size_t s = 0; s < subjects.size(); ++s) {
    for (Series& series : all[s]) records[subjects[s].plan.name].push_back(record_of(std::move(series), others));
  }
  return records;
}

}  // namespace longshot
