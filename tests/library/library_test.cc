// Everything through the library's own header, as a program of somebody else's would call it.
#include <gmock/gmock.h>

#include <thread>

#include "formats/scratch.h"
#include "longshot.h"

namespace longshot {
namespace {

std::string verses() {
  std::string text;
  for (int i = 0; text.size() < 20000; ++i) {
    text += "Verse " + std::to_string(i * 7919 % 1000) + ": the river runs to the sea, and the sea is not full.\n";
  }
  return text;
}

class Library : public testing::Test {
 protected:
  Library() {
    config_.inputs = {dir_.write("book.txt", verses()).string()};
    config_.tokenizer = "byte";
    config_.out = (dir_ / "tokens").string();
  }

  TrainRequest request(const std::string& out, const std::string& position = "alibi") const {
    TrainRequest r;
    r.data = config_.out, r.out = (dir_ / out).string();
    r.model.layers = 2, r.model.dim = 32, r.model.heads = 4, r.model.length = 24, r.model.position = position;
    r.train.steps = 6, r.train.batch_tokens = 120, r.train.log_every = 1, r.train.schedule.warmup = 2;
    return r;
  }

  ExperimentConfig experiment() const {
    ExperimentConfig e;
    const TrainRequest r = request("");
    e.model = r.model, e.train = r.train;
    e.positions = {"alibi", "rotary"};
    e.test.lengths = {24, 48};
    e.test.max_tokens = 480;
    return e;
  }

  Evaluated evaluated(LoadedModel& loaded, const TokenSet& set, const EvaluationCallbacks& callbacks) {
    const TokenFile& stream = set.split("valid");
    const EvaluationPlan plan = plan_evaluations({.lengths = {24, 48}}, reach_of(*loaded.model), stream);
    return evaluate(context_, {*loaded.model}, stream, plan, callbacks);
  }

  ScratchDir dir_;
  PrepareConfig config_;
  Context context_{1};
};

TEST_F(Library, GoesFromTextToReport) {
  const PrepareResult prepared = prepare(context_, config_, {});
  ASSERT_TRUE(prepared.finished);
  EXPECT_EQ(prepared.vocab_size, 256);

  std::vector<double> losses;
  TrainEvents events;
  events.on_step = [&](const StepReport& r) { losses.push_back(r.metrics.loss.value()); };
  const TrainResult trained = train(context_, request("run"), events);
  EXPECT_TRUE(trained.finished);
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_LT(losses.back(), losses.front());

  // The first window's losses, the long way and the short.
  LoadedModel loaded = load_model(dir_ / "run");
  const TokenSet set(config_.out);
  const Evaluated tested = evaluated(loaded, set, {});
  ASSERT_EQ(tested.records.size(), 2u);
  ASSERT_EQ(tested.losses.size(), 2u);
  std::vector<int32_t> ids(48);
  set.split("valid").read(0, ids);
  Model model = Model::load((dir_ / "run").string(), 1);
  EXPECT_EQ(model.encode(model.decode(ids)), ids);
  const std::vector<float> scores = model.score(ids);
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_NEAR(scores[i], tested.losses[1].losses[i], 1e-5) << i;

  const ExperimentPlace place{(dir_ / "tokens").string(), (dir_ / "compare").string()};
  const std::optional<Results> results = run_experiment(context_, place, experiment(), {});
  ASSERT_TRUE(results.has_value());
  ASSERT_EQ(results->runs.size(), 2u);
  EXPECT_EQ(results->runs[0].evals.size(), 2u);
  const ReportFiles report = write_report(*results, dir_ / "report", {.figures = false});
  EXPECT_TRUE(fs::exists(report.page));
  EXPECT_EQ(gather_results({dir_ / "compare", dir_ / "run"}).runs.size(), 3u);
}

TEST_F(Library, EvaluatesExportsAndImports) {
  ASSERT_TRUE(prepare(context_, config_, {}).finished);
  TrainRequest portable = request("run");
  portable.model.embed_scale = false, portable.model.activation = Activation::kGelu;
  ASSERT_TRUE(train(context_, portable).finished);
  Model model = Model::load(portable.out, 1);
  const std::string losses = (dir_ / "losses.csv").string();
  const EvaluatedRun tested =
      model.evaluate({.run = portable.out, .data = config_.out, .config = {.lengths = {24, 48}}, .losses = losses});
  EXPECT_TRUE(tested.evaluated.finished);
  EXPECT_EQ(tested.line.results.size(), 2u);
  EXPECT_TRUE(fs::exists(losses));
  const Results gathered = gather_results({portable.out});
  ASSERT_EQ(gathered.runs.size(), 1u);
  ASSERT_EQ(gathered.runs[0].evals.size(), 2u);
  EXPECT_EQ(gathered.runs[0].evals[1].loss, tested.line.results[1].loss);

  export_gguf({.run = portable.out, .out = dir_ / "x.gguf"});
  const ImportSummary made = import_model(dir_ / "x.gguf", RunDir(dir_ / "again"));
  EXPECT_EQ(made.config.layers, 2);
  const std::vector<int32_t> ids(40, 'e');
  EXPECT_EQ(Model::load((dir_ / "again").string(), 1).score(ids), model.score(ids));
}

TEST_F(Library, SeveralModelsTrainAndRunOnSeveralThreads) {
  ASSERT_TRUE(prepare(context_, config_, {}).finished);
  const std::vector<std::string> positions = {"alibi", "rotary", "t5"};
  const std::vector<int32_t> ids(40, 'e');
  const auto work = [&](const std::string& position, const std::string& out) {
    Context own(1);
    EXPECT_TRUE(train(own, request(out, position)).finished);
    return Model::load((dir_ / out).string(), 1).score(ids);
  };
  std::vector<std::vector<float>> together(positions.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < positions.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = work(positions[i], "together-" + positions[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(together[i], work(positions[i], "alone-" + positions[i])) << positions[i];
  }
}

TEST_F(Library, EveryLongCallStopsWhenAsked) {
  const auto stop = [] { return true; };
  const Watch watch{.should_stop = stop};
  EXPECT_FALSE(prepare(context_, config_, {.stop = stop}).finished);
  ASSERT_TRUE(prepare(context_, config_, {}).finished);

  TrainEvents events;
  events.should_stop = stop;
  EXPECT_FALSE(train(context_, request("run"), events).finished);
  TrainRequest rest = request("run");
  rest.resume = true;
  ASSERT_TRUE(train(context_, rest).finished);

  events.should_stop = [] { return false; };
  events.reading = watch;
  EXPECT_THROW(train(context_, request("unread"), events), Stopped);
  EXPECT_FALSE(fs::exists(dir_ / "unread"));

  EXPECT_THROW(load_model(dir_ / "run", watch), Stopped);
  EXPECT_THROW(Model::load((dir_ / "run").string(), 1, watch), Stopped);
  Model model = Model::load((dir_ / "run").string(), 1);
  const std::vector<int32_t> ids(100, 'e');
  EXPECT_THROW(model.score(ids, watch), Stopped);
  EXPECT_THROW(model.next_log_probabilities(ids, watch), Stopped);
  GenerationCallbacks generation;
  int steps = 0;
  generation.should_stop = [&] { return ++steps > 3; };
  const Generated generated = model.generate(ids, {}, generation);
  EXPECT_LT(generated.samples[0].ids.size(), 5u);
  EXPECT_EQ(generated.samples[0].ended, Ended::kAsked);
  EXPECT_EQ(model.score(ids).size(), ids.size()) << "a model that was stopped is as it was";
  UnboundedConfig strict;
  strict.on = strict.strict = true;
  EXPECT_THROW(model.generate_unbounded({.prompt = ids}, strict, watch), Stopped);
  RunEvaluationCallbacks testing;
  testing.reading = watch;
  const EvaluationRequest test{.run = (dir_ / "run").string(), .data = config_.out, .config = {.lengths = {24}}};
  EXPECT_THROW(model.evaluate(test, testing), Stopped);
  EXPECT_FALSE(fs::exists(RunDir(dir_ / "run").evals()));
  EXPECT_THROW(import_model(fs::path(LONGSHOT_SOURCE_DIR) / "tests/fixtures/checkpoints/alibi.pt",
                            RunDir(dir_ / "imported"), {.watch = watch}),
               Stopped);
  EXPECT_FALSE(fs::exists(dir_ / "imported"));

  LoadedModel loaded = load_model(dir_ / "run");
  const TokenSet set(config_.out);
  EXPECT_FALSE(evaluated(loaded, set, {.should_stop = stop}).finished);
  const Evaluated tested = evaluated(loaded, set, {});
  int asked = 0;
  const Watch later{.should_stop = [&] { return ++asked > 1; }};  // when the file is there already
  EXPECT_THROW(write_losses(dir_ / "losses.csv", set.split("valid"), tested.losses, later), Stopped);
  EXPECT_FALSE(fs::exists(dir_ / "losses.csv"));

  const ExperimentPlace place{config_.out, (dir_ / "compare").string()};
  EXPECT_FALSE(run_experiment(context_, place, experiment(), {.should_stop = stop}).has_value());
  const std::optional<Results> results = run_experiment(context_, place, experiment(), {});
  ASSERT_TRUE(results.has_value());
  EXPECT_THROW(gather_results({dir_ / "compare"}, watch), Stopped);
  EXPECT_THROW(write_report(*results, dir_ / "report", {}, watch), Stopped);
  EXPECT_FALSE(fs::exists(dir_ / "report/report.html"));
}

// From 0 or later to 1, never back.
class Shares {
 public:
  Watch watch() {
    return {.on_progress = [this](double share) {
      EXPECT_GE(share, last_);
      EXPECT_LE(share, 1);
      last_ = share, ++calls_;
    }};
  }
  bool whole() const { return calls_ > 1 && last_ == 1; }

 private:
  double last_ = 0;
  int calls_ = 0;
};

TEST_F(Library, LongCallsSayHowFarTheyAre) {
  ASSERT_TRUE(prepare(context_, config_, {}).finished);
  ASSERT_TRUE(train(context_, request("run")).finished);
  Shares loading, scoring, writing, gathering, drawing, verifying, importing;
  import_model(fs::path(LONGSHOT_SOURCE_DIR) / "tests/fixtures/checkpoints/alibi.pt", RunDir(dir_ / "imported"),
               {.watch = importing.watch()});
  EXPECT_TRUE(importing.whole());
  TokenSet(config_.out).split("train").verify(verifying.watch());
  EXPECT_TRUE(verifying.whole());
  Model model = Model::load((dir_ / "run").string(), 1, loading.watch());
  EXPECT_TRUE(loading.whole());
  model.score(std::vector<int32_t>(100, 'e'), scoring.watch());
  EXPECT_TRUE(scoring.whole());

  LoadedModel loaded = load_model(dir_ / "run");
  const TokenSet set(config_.out);
  int64_t scored = 0;
  EvaluationCallbacks callbacks;
  callbacks.on_progress = [&](const EvaluationCallbacks::Progress& p) { scored = p.scored; };
  const Evaluated tested = evaluated(loaded, set, callbacks);
  EXPECT_EQ(scored, tested.records.back().tokens);
  write_losses(dir_ / "losses.csv", set.split("valid"), tested.losses, writing.watch());
  EXPECT_TRUE(writing.whole());
  const Results results = gather_results({dir_ / "run"}, gathering.watch());
  EXPECT_TRUE(gathering.whole());
  write_report(results, dir_ / "report", {.gnuplot = "no-such-gnuplot"}, drawing.watch());
  EXPECT_TRUE(drawing.whole());
}

}  // namespace
}  // namespace longshot
