#include "run/results.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/sample.h"
#include "report/schema.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::string complaint(const Json& json) {
  try {
    Results::from_json(json, "results.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Results, RoundTripKeepsEverything) {
  const Json json = sample_results().to_json();
  EXPECT_EQ(Results::from_json(json, "sample").to_json(), json);
  // Through text as well: numbers must survive.
  EXPECT_EQ(Results::from_json(parse_json(json.dump(), "text"), "sample").to_json(), json);
  const RunRecord run = sample_run("t5", 64, 1, 1.0);
  EXPECT_EQ(run_to_json(run_from_json(run_to_json(run), "run")), run_to_json(run));
  EXPECT_EQ(eval_to_json(run.evals[1]), run_to_json(run)["evals"][1]);
}

TEST(Results, SampleAndEmptyResultsFitTheSchema) {
  const Schema schema(read_json(LONGSHOT_SOURCE_DIR "/docs/results-schema.json"));
  EXPECT_EQ(schema.check(sample_results().to_json()), "");
  EXPECT_EQ(schema.check(Results{}.to_json()), "");
}

// One list of damage, tried on both guards: what the schema refuses, the reader refuses, with a message that
// says where.
struct Damage {
  const char* pointer;
  Json value;
  const char* message;
};

TEST(Results, DamageIsRefusedByReaderAndSchema) {
  const Schema schema(read_json(LONGSHOT_SOURCE_DIR "/docs/results-schema.json"));
  const Damage damages[] = {
      {"/format", "something-else", "format"},
      {"/format_version", 4, "format_version"},
      {"/runs", 7, "runs must be a list"},
      {"/runs/0", "run", "an object was expected"},
      {"/runs/0/name", Json(), "name must be text"},
      {"/runs/0/name", "", "name"},
      {"/runs/0/train_length", 0, "outside 1 to"},
      {"/runs/0/train_length", 64.5, "whole number"},
      {"/runs/0/train_length", "64", "whole number"},
      {"/runs/0/train_length", uint64_t{18446744073709551615u}, "outside"},
      {"/runs/0/seed", -1, "seed is -1"},
      {"/runs/0/train_seconds", -0.5, "train_seconds is -0.5"},
      {"/runs/0/train_seconds", "long", "must be a number"},
      {"/runs/0/evals/1/mode", "slidng", "slidng"},
      {"/runs/0/evals/1/score", "some", "none of same, all"},
      {"/runs/0/evals/0/loss", -1, "loss is -1"},
      {"/runs/0/evals/0/colour", "red", "unknown field 'colour'"},
      {"/runs/0/curve/3/step", Json::array(), "curve[3]"},
      {"/runs/4/biases/slopes/2", "steep", "slopes must be a number"},
      {"/runs/0/biases", 3, "biases"},
      {"/machine/threads", 0, "threads is 0"},
      {"/data", Json(), "data"},
      {"/suprise", 1, "unknown field 'suprise'"},
  };
  for (const Damage& damage : damages) {
    Json json = sample_results().to_json();
    json[Json::json_pointer(damage.pointer)] = damage.value;
    EXPECT_THAT(complaint(json), testing::AllOf(testing::StartsWith("results.json"), HasSubstr(damage.message)))
        << damage.pointer << " = " << damage.value;
    EXPECT_NE(schema.check(json), "") << damage.pointer << " = " << damage.value;
  }
}

TEST(Results, MissingFieldsAreNamed) {
  const Json whole = sample_results().to_json();
  for (const auto& [key, value] : whole.items()) {
    Json json = whole;
    if (key == "planned_runs") continue;  // of an experiment only
    json.erase(key);
    EXPECT_THAT(complaint(json), HasSubstr("the field '" + key + "' is missing"));
  }
}

TEST(Results, FieldsMustAgree) {
  const auto changed = [](const std::function<void(Results&)>& change) {
    Results results = sample_results();
    change(results);
    return complaint(results.to_json());
  };
  EXPECT_THAT(changed([](Results& r) { r.runs[1].evals[0].perplexity = 99; }),
              HasSubstr("perplexity is 99, but exp(loss)"));
  EXPECT_THAT(changed([](Results& r) { r.runs[1].evals[0].loss = 800; }), HasSubstr("but exp(loss) = exp(800) = inf"));
  EXPECT_THAT(changed([](Results& r) { r.runs[1].evals[0].perplexity = {}; }),
              HasSubstr("one of loss and perplexity is null"));
  EXPECT_THAT(changed([](Results& r) { r.runs[1].evals[0].stride = 8; }),
              HasSubstr("the stride is 8 and the length 64"));
  EXPECT_THAT(changed([](Results& r) { r.runs[1].evals[1].stride = 65; }),
              HasSubstr("stride 65 is longer than the window 64"));
  EXPECT_THAT(changed([](Results& r) { r.runs[0].decomposition[1].beyond += 0.001; }),
              HasSubstr("curse_relief + beyond"));
  EXPECT_THAT(changed([](Results& r) { r.runs[0].per_position[2].to = 1; }), HasSubstr("is not below to 1"));
  EXPECT_THAT(changed([](Results& r) { r.runs[0].curve[5].step = 50; }),
              HasSubstr("curve goes from step 50 to step 50"));
  EXPECT_THAT(changed([](Results& r) { r.runs[1].name = r.runs[0].name; }), HasSubstr("two runs are named"));
  EXPECT_THAT(changed([](Results& r) { r.runs[4].biases->slopes.pop_back(); }),
              HasSubstr("heads is 8, but there are 7 slopes"));
  EXPECT_THAT(changed([](Results& r) { r.runs[4].biases->table = {{1.0}}; }), HasSubstr("either slopes or table"));
  EXPECT_THAT(changed([](Results& r) { r.runs[12].biases->table[3].pop_back(); }),
              HasSubstr("127 distances, the first 128"));
}

TEST(Results, WhatIsNotFiniteBecomesNull) {
  Results results = sample_results();
  results.runs[0].evals[0].loss = results.runs[0].evals[0].perplexity = std::numeric_limits<double>::quiet_NaN();
  results.runs[0].curve[0].loss = std::numeric_limits<double>::infinity();
  const Results read = Results::from_json(results.to_json(), "sample");
  EXPECT_FALSE(read.runs[0].evals[0].loss);
  EXPECT_FALSE(read.runs[0].curve[0].loss);
}

TEST(Results, BrokenFilesFailWithTheirName) {
  const fs::path path = fs::temp_directory_path() / "longshot-broken-results.json";
  const std::string whole = sample_results().to_json().dump();
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("null"), whole.substr(0, whole.size() / 2),
        std::string("{\"format\": \"\xff\xfe\"}"), std::string(10000, '[')}) {
    write_atomically(path, text);
    try {
      read_results(path);
      ADD_FAILURE() << "read: " << text.substr(0, 40);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path.string()));
    }
  }
  fs::remove(path);
  EXPECT_THROW(read_results(path), Error);
}

TEST(Results, BiasAtADistance) {
  const Biases slopes{.heads = 1, .slopes = {0.25}, .table = {}};
  EXPECT_DOUBLE_EQ(slopes.at(0, 6), -1.5);
  const Biases table{.heads = 1, .slopes = {}, .table = {{0.5, -1, -2}}};
  EXPECT_DOUBLE_EQ(table.at(0, 1), -1);
  EXPECT_DOUBLE_EQ(table.at(0, 100), -2) << "beyond the table its last entry holds";
}

TEST(Results, ThisMachineIsDescribed) {
  const Machine machine = this_machine(3);
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_EQ(machine.threads, 3);
  EXPECT_GT(machine.memory_bytes, 1 << 20);
}

}  // namespace
}  // namespace longshot
