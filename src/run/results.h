// results.json: everything `longshot compare` measured. docs/results-schema.json states the format; this is
// its C++ side. Reading checks every field and names file, field and value; what is not known is null.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/context.h"
#include "base/options.h"
#include "base/records.h"
#include "run/metrics.h"

namespace longshot {

enum class WindowMode { kNonoverlapping, kSliding };
constexpr Choice<WindowMode> kWindowModes[] = {{"nonoverlapping", WindowMode::kNonoverlapping},
                                               {"sliding", WindowMode::kSliding}};

// Which tokens a length scores: the same at every length, in whole windows where the lengths divide each other, or the
// whole split.
enum class Scored { kSame, kAll };
constexpr Choice<Scored> kScored[] = {{"same", Scored::kSame}, {"all", Scored::kAll}};

// One perplexity with its protocol. `loss` is in nats per token; null where the model gave no finite number.
struct EvalRecord {
  int64_t length = 0;  // window
  WindowMode mode = WindowMode::kNonoverlapping;
  int64_t stride = 0;  // tokens the window advances; = length when nonoverlapping
  std::string split = "valid";
  Scored score = Scored::kSame;
  int64_t tokens = 0;  // scored
  // Whose number it is: hash of the split's tokens, checksum and step of the weights. Not known of older records.
  std::optional<std::string> data{}, weights{};
  OptionalCount step{};
  std::optional<Precision> precision{};     // of the operands of products
  std::optional<std::string> arithmetic{};  // the instructions that products used
  // What the position method did otherwise than in training: "alibi-scaling ntk, alibi-scaling-factor 4". Null: nothing.
  std::optional<std::string> scaling{};
  OptionalNumber loss{}, standard_error{}, perplexity{}, word_perplexity{}, bits_per_byte{}, tokens_per_second{};
  OptionalCount peak_memory_bytes{};
  // Mean losses of equal stretches of the scored tokens, in stream order. Two evaluations of the same tokens have the same
  // stretches: their differences are paired.
  std::vector<double> blocks{};
};
// The same windows over the same number of tokens of the same split, with the same scaling of positions, whatever the
// answers and whoever gave them.
bool same_question(const EvalRecord& a, const EvalRecord& b);

// Mean loss of tokens that have t tokens of context before them, from <= t < to.
struct PositionLoss {
  int64_t from = 0, to = 0, tokens = 0;
  OptionalNumber loss{}, standard_error{};
};

// nonoverlapping loss at `length` minus that at the training length = total = curse_relief + beyond. Errors are standard
// errors over stretches of the text.
struct Decomposition {
  int64_t length = 0;
  double total = 0, curse_relief = 0, beyond = 0;
  OptionalNumber total_error{}, curse_relief_error{}, beyond_error{};
};

enum class SpeedWork { kEvaluation, kTraining };
constexpr Choice<SpeedWork> kSpeedWorks[] = {{"evaluation", SpeedWork::kEvaluation},
                                             {"training", SpeedWork::kTraining}};

// A speed, measured several times in turn with the other models of an experiment.
struct SpeedRecord {
  SpeedWork work = SpeedWork::kEvaluation;
  int64_t length = 0;                    // of the windows
  double median = 0, low = 0, high = 0;  // tokens per second
  int64_t rounds = 0;
  OptionalNumber other_load{};  // the share of the machine that other programs took meanwhile

  // Nothing else ran, as far as can be told.
  bool reliable() const { return other_load && *other_load <= 0.05; }
};

template <class V>
void fields(V& v, SpeedRecord& s) {
  v("work", s.work, kSpeedWorks);
  v("length", s.length, kPositiveCount);
  v("median", s.median, kNotNegative);
  v("low", s.low, kNotNegative);
  v("high", s.high, kNotNegative);
  v("rounds", s.rounds, kPositiveCount);
  v("other_load", s.other_load, kNotNegative);
}

// What the position method adds to the scores of each head in layer `layer`, by distance d:
// -slopes[h] d, or table[h][min(d, last)].
struct Biases {
  int64_t heads = 0, layer = 0;
  std::vector<double> slopes{};              // [heads] or empty
  std::vector<std::vector<double>> table{};  // [heads][distances] or empty

  double at(size_t head, size_t distance) const;
};

// A line of evals.jsonl, and what `eval --json` writes.
struct EvaluationLine {
  std::string model, position;
  int64_t train_length = 0;
  std::vector<EvalRecord> results{};
  std::vector<PositionLoss> per_position{};
  std::vector<Decomposition> decomposition{};

  Json to_json() const;
  static EvaluationLine from_json(const Json& json, const std::string& origin);
};

struct RunRecord {
  std::string name, position;
  std::optional<std::string> variant{};  // of the experiment; runs of one variant differ in nothing but the seed
  std::optional<std::string> label{};    // what a reader wants it called
  int64_t train_length = 0;
  OptionValues options{};                   // of model and training, where known; immaterial ones left out
  std::optional<std::string> train_data{};  // hash of the training tokens
  std::optional<std::string> arithmetic{};  // the instructions that products used in training
  OptionalCount seed{}, parameters{}, steps{}, tokens{};
  OptionalCount planned_steps{};  // more than `steps`: training has not ended
  OptionalNumber train_seconds{}, train_tokens_per_second{};
  OptionalCount train_peak_memory_bytes{};
  std::vector<MetricsRecord> curve{};
  std::optional<Biases> biases{};
  std::vector<EvalRecord> evals{};
  std::vector<PositionLoss> per_position{};
  std::vector<Decomposition> decomposition{};
  std::vector<SpeedRecord> speeds{};

  bool finished() const { return !planned_steps || steps.value_or(0) >= *planned_steps; }
};

// Whether an option changes neither the weights nor what a number means: where things are, when they are saved.
bool is_immaterial(const std::string& option);

struct Machine {
  std::string cpu;
  OptionalCount threads{}, memory_bytes{};
};

struct Dataset {
  std::string name, tokenizer;
  OptionalCount vocabulary{}, train_tokens{};
  std::optional<std::string> train_data{}, test_data{};  // hashes of the splits' tokens
};

struct Results {
  std::string version;  // of the program
  Machine machine;
  std::string date;     // ISO 8601, UTC
  std::string command;  // as typed
  std::string config;   // the effective options as TOML
  Dataset data;
  std::vector<std::string> planned_runs{};  // names; those that are not among `runs` have not begun
  std::vector<RunRecord> runs{};

  Json to_json() const;
  // `origin` (a file's name) begins every message.
  static Results from_json(const Json& json, const std::string& origin);
};

Json run_to_json(const RunRecord& run);
RunRecord run_from_json(const Json& json, const std::string& origin);
Json eval_to_json(const EvalRecord& eval);

Results read_results(const fs::path& path);
void write_results(const fs::path& path, const Results& results);

// This machine: processor's name, threads in use, memory.
Machine this_machine(int threads);

}  // namespace longshot
