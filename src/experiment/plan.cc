#include "experiment/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longshot {
namespace {

constexpr double kLongestTraining = 1e8;  // seconds: three years

const std::vector<std::string> kPaperPositions = {"alibi", "sinusoidal", "rotary", "t5"};

// A variant before its seeds: overrides in the order they are applied.
struct Point {
  OptionTable overrides;
  bool seeded = false;  // the overrides name the seed
};

std::vector<Point> grid_points(const ExperimentConfig& config) {
  std::vector<Point> points;
  const auto add = [&](const std::string& position, int64_t length) {
    Point point{
        {fmt::format("{}-L{}", position, length), {{"position", position}, {"length", fmt::to_string(length)}}}};
    const auto same = [&](const Point& other) { return other.overrides.name == point.overrides.name; };
    if (std::ranges::none_of(points, same)) points.push_back(std::move(point));
  };
  const bool paper = config.positions.empty() && config.variants.empty();
  const std::vector<int64_t> lengths =
      config.train_lengths.empty() ? std::vector{config.model.length} : config.train_lengths;
  for (const std::string& position : paper ? kPaperPositions : config.positions) {
    for (const int64_t length : lengths) add(position, length);
  }
  for (const std::string& position : config.baseline_positions) {
    for (const int64_t length : config.baseline_lengths) add(position, length);
  }
  return points;
}

// A variant's name becomes a directory's.
void check_name(const std::string& name) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  require_usage(
      !name.empty() && name[0] != '.' && name.size() <= 100 && std::ranges::all_of(name, fits),
      "[variant.{}]: a variant's name has letters, digits, '-', '_' and '.', at most 100, and no dot in front", name);
}

std::vector<Point> points_of(const ExperimentConfig& config) {
  std::vector<Point> points = grid_points(config);
  for (const OptionTable& variant : config.variants) {
    check_name(variant.name);
    const auto same = [&](const Point& other) { return other.overrides.name == variant.name; };
    require_usage(std::ranges::none_of(points, same), "[variant.{}]: the grid has a model of that name too",
                  variant.name);
    const auto names_seed = [](const auto& value) { return value.first == "seed"; };
    points.push_back({variant, std::ranges::any_of(variant.values, names_seed)});
  }
  require_usage(!points.empty() && !config.seeds.empty(),
                "there is nothing to compare: --positions, --train-lengths and --seeds must not be empty");
  return points;
}

ModelPlan plan_of(const ExperimentConfig& config, const Point& point, uint64_t seed) {
  ModelPlan plan{.name = point.overrides.name,
                 .variant = point.overrides.name,
                 .model = config.model,
                 .train = config.train,
                 .running = config.running,
                 .tests = {}};
  plan.train.seed = seed;
  if (!point.seeded) plan.name += fmt::format("-s{}", seed);
  Options options;
  plan.model.fields(options);
  plan.train.fields(options);
  plan.running.running_fields(options);
  for (const auto& [option, value] : point.overrides.values) {
    try {
      options.at(option).set(value);
    } catch (const Error& e) {
      fail_usage("variant {}: {}", point.overrides.name, e.what());
    }
  }
  return plan;
}

// Builds the model without taking memory for it: its parts say what does not fit together.
void check(ModelPlan& plan, const EvaluationConfig& test, const TokenSet& tokens) {
  plan.model.vocab = tokens.tokenizer().vocab_size();
  plan.model.validate();
  plan.train.validate(plan.model.length);
  require_usage(plan.train.seed <= INT64_MAX, "variant {}: seeds of a comparison are at most {}, not {}", plan.variant,
                INT64_MAX, plan.train.seed);
  Transformer model(plan.model, true, Transformer::Memory::kReserved);
  model.run_with(plan.running);
  std::erase_if(plan.train.eval_lengths, [&](int64_t length) { return length > model.position().max_length(); });
  require(tokens.split("train").size() > plan.model.length, "{}: {} training tokens do not fill one sequence of {}",
          tokens.path().string(), tokens.split("train").size(), plan.model.length);
  plan.tests = plan_evaluations(test, reach_of(model), tokens.split(test.split));
}

}  // namespace

void ExperimentConfig::fields(Options& o) {
  o.add("positions", positions,
        "methods to compare; empty: alibi, sinusoidal, rotary, t5, or none where a recipe has variants");
  o.add("train-lengths", train_lengths, "train each method at each of these lengths; empty: --length");
  o.add("baseline-positions", baseline_positions, "methods also trained at --baseline-lengths");
  o.add("baseline-lengths", baseline_lengths, "longer training lengths to compare extrapolation with");
  o.add("seeds", seeds, "one model per seed");
  o.add_tables("variant", variants, "of a recipe: options of one more model, by name");
  o.add("test-lengths", test.lengths, "window lengths; empty: 1, 2, 4, .. 16 times the shortest training length");
  o.add("modes", test.modes, kWindowModes, "how test windows follow each other");
  o.add("stride", test.stride, "sliding: tokens scored per window; 0: a quarter of the length");
  o.add("split", test.split, "of the data to test on");
  o.add("eval-tokens", test.max_tokens, "tokens to test and to validate on; 0: the whole split");
  o.add("sliding-tokens", test.sliding_tokens, "tokens to test sliding windows on; 0: as many as --eval-tokens");
  o.add("equal-time", equal_time, "seconds of training for each model instead of --steps; 0: equal steps");
  o.add("speed-rounds", speed_rounds, "measure the models' speeds in turn, so many times; 0: do not");
  model.fields(o);
  running.running_fields(o);  // in the group of positions
  train.fields(o);
  o.remove("position");  // --positions and --seeds say it
  o.remove("seed");
}

std::string ExperimentConfig::to_toml() const {
  ExperimentConfig copy = *this;
  Options options;
  copy.fields(options);
  return options.to_toml(false);
}

std::vector<ModelPlan> plan_models(const ExperimentConfig& config, const TokenSet& tokens) {
  for (const int64_t seed : config.seeds) require_usage(seed >= 0, "--seeds: {} is negative", seed);
  require_usage(config.equal_time >= 0 && config.equal_time <= kLongestTraining,
                "--equal-time must not be negative and at most {} seconds, but is {}", kLongestTraining,
                config.equal_time);
  require_usage(config.speed_rounds >= 0 && config.speed_rounds <= 1000, "--speed-rounds: {} is not between 0 and 1000",
                config.speed_rounds);
  for (const int64_t length : config.train_lengths) {
    require_usage(length > 0 && length <= kLongestLength, "--train-lengths: {} is not between 1 and {}", length,
                  kLongestLength);
  }
  require_usage(config.train.eval_lengths.empty() || config.train.eval_every > 0,
                "--eval-lengths of a comparison needs --eval-every: tests come after training anyway");
  require_usage(config.train.eval_every == 0 || tokens.has("valid"),
                "{}: --eval-every needs a split 'valid'; there are: {}", tokens.path().string(),
                fmt::join(tokens.names(), ", "));
  EvaluationConfig test = config.test;
  if (test.lengths.empty()) {
    test.lengths =
        length_ladder(config.train_lengths.empty() ? config.model.length : std::ranges::min(config.train_lengths));
  }
  std::vector<ModelPlan> plans;
  for (const Point& point : points_of(config)) {
    for (const int64_t seed : point.seeded ? std::vector<int64_t>{1} : config.seeds) {
      ModelPlan plan = plan_of(config, point, static_cast<uint64_t>(seed));
      const auto same = [&](const ModelPlan& other) { return other.name == plan.name; };
      if (std::ranges::any_of(plans, same)) continue;  // a seed given twice
      check(plan, test, tokens);
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

}  // namespace longshot
