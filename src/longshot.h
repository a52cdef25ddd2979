// What a library user includes. What a command of the program can do, a program of yours can do too:
//
//   longshot::Context context;                                    // threads and scratch memory
//   longshot::prepare(context, {.inputs = {"book.txt"}, .out = "tokens"}, {});
//   longshot::train(context, {.data = "tokens", .out = "run"});
//   longshot::Model model = longshot::Model::load("run");
//   std::vector<float> losses = model.score(model.encode("In the beginning"));    // nats per token
//   std::string text = model.generate(model.encode("In the"), {.max_tokens = 20}).samples[0].text;
//   auto tested = model.evaluate({.run = "run", .data = "tokens", .config = {.lengths = {256, 4096}}});
//   longshot::export_gguf({.run = "run", .out = "run.gguf"});     // and export_hf, and back: import_model
//
//   longshot::ExperimentConfig config;                            // as `longshot compare`
//   config.train.steps = 500;
//   auto results = longshot::run_experiment(context, {"tokens", "compare"}, config, {});
//   longshot::write_report(*results, "compare");
//
// Calls that take seconds have callbacks for progress and for stopping. One that is stopped says so in what it returns, or,
// where it has nothing to return, throws longshot::Stopped. Everything that throws throws longshot::Error, which Stopped is
// too. A Context, and a Model, serves one thread at a time; several threads each with their own work side by side.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/error.h"
#include "base/version.h"
#include "base/watch.h"              // Watch, Stopped
#include "data/prepare.h"            // prepare
#include "evaluate/evaluate_run.h"   // evaluate_run, plan_evaluations, evaluate
#include "experiment/experiment.h"   // run_experiment
#include "generate/generator.h"      // GenerationConfig, Generated
#include "generate/scheduler.h"      // Scheduler: many texts at once
#include "generate/score.h"          // ScoredText
#include "generate/unbounded.h"      // UnboundedConfig, score_unbounded, generate_unbounded
#include "kernels/attention_call.h"  // Attention: forward and backward on plain pointers
#include "report/report.h"           // gather_results, write_report
#include "run/export_gguf.h"         // export_gguf
#include "run/export_hf.h"           // export_hf
#include "run/import_model.h"        // import_model
#include "run/loaded_model.h"        // load_model, for evaluate and Server
#include "serve/server.h"            // Server: completions over HTTP
#include "train/train_run.h"         // TrainRequest, TrainEvents

namespace longshot {

class Model {
 public:
  // From a run or a checkpoint directory. threads = 0: all cores. In bf16 and int8 the weights take half and a quarter of the
  // memory, and generation is so much faster (docs/running.md); none: floats, but what an import has in 16 bits stays in
  // its file.
  static Model load(const std::string& path, int threads = 0, const Watch& watch = {},
                    std::optional<WeightType> weights = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  int64_t train_length() const;
  int64_t vocab_size() const;
  const std::string& position() const;

  // Ids of a text, and back. REQUIRES: the tokenizer travelled with the model.
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids) const;

  // -ln p(id_t | start, ids before t), one per id, in one window of any length.
  std::vector<float> score(std::span<const int32_t> ids, const Watch& watch = {});
  // ln p of every next token after `ids`.
  std::vector<float> next_log_probabilities(std::span<const int32_t> ids, const Watch& watch = {});

  // The same of a text, with what each token adds to it.
  ScoredText score_text(std::string_view text, const Watch& watch = {});
  // Samples that continue `prompt`, drawn token by token on top of a key/value cache.
  Generated generate(std::span<const int32_t> prompt, const GenerationConfig& config,
                     const GenerationCallbacks& callbacks = {});
  // The same of streams without end, in memory that stays the same.
  ScoredStream score_unbounded(const TextReader& read, const UnboundedConfig& config,
                               const ScoreStreamCallbacks& callbacks = {});
  GeneratedStream generate_unbounded(TextRequest request, const UnboundedConfig& config, const Watch& preparing = {});
  // Losses at any lengths, recorded with the run: as `longshot eval`.
  EvaluatedRun evaluate(const EvaluationRequest& request, const RunEvaluationCallbacks& callbacks = {});
  // Runs with a position method's options of running, e.g. alibi-scaling: see PositionSettings::running_fields.
  void run_with(const PositionSettings& settings);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Trains as `longshot train` does, with validation where the token set has a split for it.
TrainResult train(Context& context, const TrainRequest& request, TrainEvents events = {});

}  // namespace longshot
