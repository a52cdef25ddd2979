// What the report claims, on records whose answers are known.
#include "report/findings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "report/sample.h"
#include "report/tables.h"

namespace longshot {
namespace {

using testing::HasSubstr;

// Perplexities by length; each stretch of text is `rough` harder or easier than the mean, alike for all runs.
RunRecord made_run(const std::string& position, int64_t train_length, int64_t seed,
                   const std::vector<std::pair<int64_t, double>>& perplexities, double rough = 0.2) {
  RunRecord run{.name = fmt::format("{}-{}-{}", position, train_length, seed),
                .position = position,
                .train_length = train_length,
                .seed = seed};
  for (const auto& [length, perplexity] : perplexities) {
    EvalRecord e = sample_eval(WindowMode::kNonoverlapping, length, length, std::log(perplexity), 1000);
    for (int b = 0; b < 64; ++b) e.blocks.push_back(*e.loss + (b % 2 ? rough : -rough));
    run.evals.push_back(std::move(e));
  }
  return run;
}

// The same with noise of its own in every stretch, which no pairing takes away.
RunRecord noisy_run(const std::string& position, int64_t seed, double perplexity, double noise) {
  RunRecord run = made_run(position, 64, seed, {{64, perplexity}});
  for (size_t b = 0; b < 64; ++b) run.evals[0].blocks[b] += (b / 2 % 2 ? noise : -noise);
  return run;
}

struct Case {
  Results results;
  std::vector<Group> groups;
  EvalProtocol protocol;
  std::vector<int64_t> lengths;
};

Case case_of(std::vector<RunRecord> runs) {
  Case c;
  c.results.runs = std::move(runs);
  return c;
}

void look(Case& c) {
  c.groups = groups_of(c.results);
  c.protocol = protocols_of(c.results)[0];
  c.lengths = lengths_of(c.results, c.protocol);
}

TEST(Findings, ADifferenceOnTheSameTokensIsPaired) {
  // Both vary by 0.2 nats over the text, together: a difference of 1% stands out.
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}}), made_run("rotary", 64, 1, {{64, 10.1}})});
  look(c);
  const Interval d = *loss_difference({c.groups[1], 64}, {c.groups[0], 64}, c.protocol);
  EXPECT_NEAR(d.mean, std::log(1.01), 1e-12);
  EXPECT_NEAR(*d.half_width, 0, 1e-9);
  EXPECT_FALSE(is_tie(d));
  EXPECT_TRUE(answers(c.groups, c.protocol, c.lengths)[0].ties.empty());
}

TEST(Findings, ADifferenceInsideTheNoiseIsATie) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}}), noisy_run("rotary", 1, 10.1, 0.2)});
  look(c);
  const Interval d = *loss_difference({c.groups[1], 64}, {c.groups[0], 64}, c.protocol);
  // Stretches differ by +-0.2: standard error 0.2 sqrt(64 / 63) / 8.
  EXPECT_NEAR(*d.half_width, 1.96 * 0.2 * std::sqrt(64.0 / 63) / 8, 1e-9);
  EXPECT_TRUE(is_tie(d));
  const Answer answer = answers(c.groups, c.protocol, c.lengths)[0];
  EXPECT_EQ(answer.best->position, "alibi");
  ASSERT_EQ(answer.ties.size(), 1u);
  EXPECT_EQ(answer.ties[0].group, &c.groups[1]);
  EXPECT_FALSE(answer.ties[0].too_noisy);
}

TEST(Findings, SeedsWidenTheInterval) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}}), made_run("alibi", 64, 2, {{64, 10}}),
                    made_run("rotary", 64, 1, {{64, 10.1}}), made_run("rotary", 64, 2, {{64, 10.3}})});
  look(c);
  ASSERT_EQ(c.groups.size(), 2u);
  const Interval d = *loss_difference({c.groups[1], 64}, {c.groups[0], 64}, c.protocol);
  const double a = std::log(1.01), b = std::log(1.03);
  EXPECT_NEAR(d.mean, (a + b) / 2, 1e-12);
  EXPECT_NEAR(*d.half_width, 12.706 * (b - a) / 2, 1e-6) << "two seeds: one degree of freedom";
  EXPECT_TRUE(is_tie(d));
}

TEST(Findings, WithoutErrorsHalfAPercentDecides) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}}), made_run("t5", 64, 1, {{64, 10.04}}),
                    made_run("rotary", 64, 1, {{64, 10.1}})});
  for (RunRecord& run : c.results.runs) run.evals[0].blocks.clear(), run.evals[0].standard_error.reset();
  look(c);
  const Answer answer = answers(c.groups, c.protocol, c.lengths)[0];
  ASSERT_EQ(answer.ties.size(), 1u);
  EXPECT_EQ(answer.ties[0].group, &c.groups[1]);
  EXPECT_FALSE(answer.ties[0].too_noisy);
}

TEST(Findings, ConfigurationsAreNotMerged) {
  RunRecord a = made_run("alibi", 64, 1, {{64, 10}}), b = made_run("alibi", 64, 2, {{64, 20}}),
            c = made_run("alibi", 64, 3, {{64, 10}}), d = made_run("alibi", 64, 4, {{64, 10}});
  a.options = {{"lr", "0.001"}, {"seed", "1"}, {"out", "x"}};
  b.options = {{"lr", "0.002"}, {"seed", "2"}, {"out", "y"}};
  c.options = {{"lr", "0.001"}, {"seed", "3"}, {"out", "z"}};
  d.options = a.options;
  d.evals[0].step = 100;  // other weights
  Results results;
  results.runs = {a, b, c, d};
  const auto groups = groups_of(results);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].runs.size(), 2u) << "seeds 1 and 3";
  EXPECT_EQ(groups[0].label, "ALiBi (lr 0.001)");
  EXPECT_EQ(groups[1].label, "ALiBi (lr 0.002)");
  EXPECT_THAT(groups[2].label, HasSubstr("step 100"));
  EXPECT_THAT(html_text(configuration_table(groups)), HasSubstr("lr 0.002"));
}

TEST(Findings, OtherTextOrOtherNumbersOfTokensAreOtherProtocols) {
  RunRecord a = made_run("alibi", 64, 1, {{64, 10}}), b = made_run("rotary", 64, 1, {{64, 10}}),
            c = made_run("t5", 64, 1, {{64, 10}});
  b.evals[0].data = "abc";
  c.evals[0].tokens /= 2;
  Results results;
  results.runs = {a, b, c};
  const auto protocols = protocols_of(results);
  ASSERT_EQ(protocols.size(), 3u);
  const auto groups = groups_of(results);
  for (size_t p = 0; p < 3; ++p) {
    for (size_t g = 0; g < 3; ++g) EXPECT_EQ(groups[g].perplexity(protocols[p], 64).asked, g == p) << p << ", " << g;
  }
}

TEST(Findings, OneDocumentHasAnErrorOverItsStretches) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}}, 0.2)});
  c.results.runs[0].evals[0].standard_error.reset();
  look(c);
  EXPECT_NEAR(*c.groups[0].perplexity(c.protocol, 64).text_error, 10 * 0.2 * std::sqrt(64.0 / 63) / 8, 1e-9);
}

TEST(Findings, LabelsOfTheReaderCount) {
  RunRecord a = made_run("alibi", 64, 1, {{64, 10}}), b = made_run("alibi", 64, 2, {{64, 20}});
  a.label = "steep", b.label = "flat";
  Results results;
  results.runs = {a, b};
  const auto groups = groups_of(results);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].label, "steep");
  EXPECT_EQ(groups[1].text(), "flat trained at 64");
}

TEST(Findings, Verdicts) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}, {128, 9}, {256, 9.5}}),
                    made_run("t5", 64, 1, {{64, 10}, {128, 10.1}, {256, 10.1}}),
                    made_run("rotary", 64, 1, {{64, 10}, {128, 10.1}, {256, 14}}),
                    made_run("sinusoidal", 64, 1, {{64, 10}, {256, 15.1}}), made_run("none", 64, 1, {{64, 10}})});
  look(c);
  const auto all = extrapolations(c.groups, c.protocol, c.lengths);
  ASSERT_EQ(all.size(), 4u) << "a model tested at its own length alone says nothing";
  EXPECT_STREQ(all[0].verdict(), "improves");
  EXPECT_EQ(all[0].best_length, 128);
  EXPECT_EQ(all[0].longest, 256);
  EXPECT_EQ(all[0].holds_to, 256);
  EXPECT_STREQ(all[1].verdict(), "holds");
  EXPECT_STREQ(all[2].verdict(), "degrades");
  EXPECT_EQ(all[2].holds_to, 128);
  EXPECT_STREQ(all[3].verdict(), "breaks");
  EXPECT_EQ(all[3].holds_to, 64);
}

TEST(Findings, AChangeInsideTheNoiseHolds) {
  Case c = case_of({made_run("alibi", 64, 1, {{64, 10}, {128, 9.9}}), made_run("t5", 64, 1, {{64, 10}, {128, 10.3}})});
  for (RunRecord& run : c.results.runs)
    for (size_t b = 0; b < 64; ++b) run.evals[1].blocks[b] += b / 2 % 2 ? 0.2 : -0.2;
  look(c);
  const auto all = extrapolations(c.groups, c.protocol, c.lengths);
  EXPECT_STREQ(all[0].verdict(), "holds") << "1% better, inside";
  EXPECT_STREQ(all[1].verdict(), "not clear") << "3% worse, inside";
}

TEST(Findings, ExtraTextIsUsedOnlyOutsideTheError) {
  RunRecord run = made_run("alibi", 64, 1, {{64, 10}, {128, 9}, {256, 8}, {512, 8}});
  run.decomposition = {{.length = 128, .total = -0.10, .curse_relief = -0.09, .beyond = -0.01, .beyond_error = 0.002},
                       {.length = 256, .total = -0.10, .curse_relief = -0.09, .beyond = -0.01, .beyond_error = 0.01},
                       {.length = 512, .total = 0.05, .curse_relief = 0.01, .beyond = 0.04, .beyond_error = 0.01}};
  Case c = case_of({run});
  look(c);
  EXPECT_EQ(use_of_extra_text({c.groups[0], 128}), ExtraText::kUsed);
  EXPECT_EQ(use_of_extra_text({c.groups[0], 256}), ExtraText::kNotUsed);
  EXPECT_EQ(use_of_extra_text({c.groups[0], 512}), ExtraText::kHarmful);
  EXPECT_EQ(use_of_extra_text({c.groups[0], 64}), ExtraText::kUnknown);
  const std::string table = csv_text(answer_table(answers(c.groups, c.protocol, c.lengths), c.protocol, "byte"));
  EXPECT_THAT(table, HasSubstr("yes (-0.0100)"));
  EXPECT_THAT(table, HasSubstr("not seen (-0.0100)"));
  EXPECT_THAT(table, HasSubstr(",harmful (+0.0400)\r\n"));
}

std::vector<SpeedRecord> training_speed(int64_t length, double median, double load) {
  return {{.work = SpeedWork::kTraining,
           .length = length,
           .median = median,
           .low = 0.95 * median,
           .high = 1.05 * median,
           .rounds = 3,
           .other_load = load}};
}

TEST(Findings, TheSavingIsStated) {
  Case c = case_of({made_run("sinusoidal", 128, 1, {{128, 10.0}}), made_run("alibi", 64, 1, {{64, 11}, {128, 9.98}}),
                    made_run("alibi", 128, 1, {{128, 9.5}})});
  c.results.runs[1] = noisy_run("alibi", 1, 11, 0.1);
  EvalRecord far = c.results.runs[1].evals[0];
  far.length = far.stride = 128, far.loss = std::log(9.98), far.perplexity = 9.98;
  c.results.runs[1].evals.push_back(far);
  for (RunRecord& run : c.results.runs) run.tokens = 1'000'000;
  c.results.runs[0].train_peak_memory_bytes = 1000, c.results.runs[1].train_peak_memory_bytes = 890;
  c.results.runs[0].speeds = training_speed(128, 1000, 0), c.results.runs[1].speeds = training_speed(64, 1250, 0);
  look(c);
  const auto all = savings(c.groups, c.protocol);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].longer->position, "sinusoidal");
  EXPECT_TRUE(all[0].same());
  EXPECT_EQ(
      all[0].sentence(),
      "ALiBi trained at 64, tested at 128, reaches perplexity 9.98; Sinusoidal trained at 128 reaches 10.00: the same "
      "within the noise, for 20% less training time and 11% less memory. One seed: another may tell otherwise.");
  EXPECT_FALSE(all[1].same());
  EXPECT_THAT(all[1].sentence(), HasSubstr("5.1% worse"));
  EXPECT_FALSE(all[1].time_saved) << "nothing is known about the third run's speed";
}

TEST(Findings, SpeedsAreClaimedOnlyWhereTheRoundsAreApartAndNothingElseRan) {
  const auto a = training_speed(64, 1000, 0), b = training_speed(64, 1050, 0), c = training_speed(64, 2000, 0),
             d = training_speed(64, 2000, 0.3);
  EXPECT_FALSE(speed_ratio(a.data(), b.data())->clear);
  EXPECT_TRUE(speed_ratio(a.data(), c.data())->clear);
  EXPECT_TRUE(speed_ratio(a.data(), c.data())->reliable);
  EXPECT_FALSE(speed_ratio(a.data(), d.data())->reliable);
  EXPECT_FALSE(speed_ratio(a.data(), nullptr));
}

TEST(Findings, HowMuchSooner) {
  // Both lose a nat per 10 million tokens; the short one is twice as fast.
  RunRecord shorter = made_run("alibi", 64, 1, {{64, 10}}), longer = made_run("sinusoidal", 128, 1, {{128, 10}});
  for (int64_t step = 1; step <= 10; ++step) {
    const double loss = 5 - 0.1 * static_cast<double>(step);
    MetricsRecord point{.step = step, .tokens = step * 1'000'000};
    point.valid_losses = {{128, loss}};
    shorter.curve.push_back(point);
    point.valid_losses.clear();
    point.valid_loss = loss;
    longer.curve.push_back(point);
  }
  shorter.speeds = training_speed(64, 2000, 0), longer.speeds = training_speed(128, 1000, 0);
  Case c = case_of({shorter, longer});
  look(c);
  const auto all = sooner(c.groups);
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all[0].points.size(), 5u);
  for (const Sooner::Point& p : all[0].points) EXPECT_NEAR(*p.earlier, 0.5, 1e-9);
  EXPECT_NEAR(all[0].points[4].perplexity, std::exp(4.0), 1e-9);

  // One that never gets there.
  c.results.runs[1].curve.back().valid_loss = 1;
  look(c);
  EXPECT_FALSE(sooner(c.groups)[0].points[4].earlier);
}

TEST(Findings, AMethodThatFailsAndARunThatIsNotFinished) {
  RunRecord failed = made_run("rotary", 64, 1, {{64, 10}, {128, 9}});
  failed.evals[1].loss = failed.evals[1].perplexity = std::nullopt;
  failed.evals[1].blocks.clear();
  RunRecord unfinished{
      .name = "alibi-2", .position = "alibi", .train_length = 64, .seed = 2, .steps = 5, .planned_steps = 9};
  Case c = case_of({failed, made_run("alibi", 64, 1, {{64, 11}, {128, 11}}), unfinished});
  look(c);
  const auto all = answers(c.groups, c.protocol, c.lengths);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].best->position, "rotary");
  EXPECT_EQ(all[1].best->position, "alibi");
  ASSERT_EQ(c.groups.size(), 3u) << "what is not finished is no seed of what is";
  EXPECT_EQ(c.groups[1].finished, false);
  EXPECT_THAT(c.groups[1].label, HasSubstr("not finished"));

  Results untested;
  untested.runs = {unfinished, unfinished};
  untested.runs[1].name = "alibi-3", untested.runs[1].steps = 9;
  EXPECT_EQ(groups_of(untested).size(), 2u) << "one is, though neither is tested";
}

}  // namespace
}  // namespace longshot
