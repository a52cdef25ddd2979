#include "run/tensorboard.h"

#include <gmock/gmock.h>

#include <chrono>

#include "run/event_reader.h"
#include "train/support.h"

namespace longshot {
namespace {

using event_reader::Event;
using event_reader::read_events;
using testing::ElementsAre;
using testing::Pair;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::vector<int64_t> steps_of(const std::vector<Event>& events) {
  std::vector<int64_t> steps;
  for (const Event& e : events) {
    if (e.file_version.empty()) steps.push_back(e.step);
  }
  return steps;
}

// One event a record, in its order, with what the record knows; in front of them the version.
void expect_equal(const std::vector<Event>& events, const std::vector<MetricsRecord>& records) {
  ASSERT_EQ(events.size(), records.size() + 1);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  for (size_t i = 0; i < records.size(); ++i) {
    const MetricsRecord& r = records[i];
    EXPECT_EQ(events[i + 1].step, r.step);
    std::map<std::string, float> want;
    const auto scalar = [&](const char* tag, const OptionalNumber& value) {
      if (value) want[tag] = static_cast<float>(*value);
    };
    scalar("loss/train", r.loss);
    scalar("loss/valid", r.valid_loss);
    for (const ValidLoss& v : r.valid_losses)
      want["loss/valid at " + std::to_string(v.length)] = static_cast<float>(v.loss);
    scalar("schedule/lr", r.lr);
    scalar("gradient_norm", r.gradient_norm);
    scalar("tokens_per_second", r.tokens_per_second);
    EXPECT_EQ(events[i + 1].scalars, want) << "step " << r.step;
  }
}

TEST(EventReader, KnowsTheChecksum) { EXPECT_EQ(event_reader::crc32c("123456789"), 0xe3069283u); }

TEST(EventFile, HoldsTheKnownFieldsOfEveryRecord) {
  const ScratchDir dir;
  const fs::path path = dir / "tfevents";
  EventFile file(path);
  const std::vector<MetricsRecord> records = {
      {.step = 1, .seconds = 2, .loss = 5.5, .lr = 1e-3, .gradient_norm = 0.5, .tokens_per_second = 1e6},
      {.step = int64_t{1} << 40, .seconds = 12, .valid_loss = 4.25, .valid_losses = {{64, 4}, {128, 3.5}}},
      {.step = (int64_t{1} << 40) + 127, .seconds = 20, .loss = 3}};
  file.write(std::span(records).first(2));
  file.append(records[2]);
  const std::vector<Event> events = read_events(read_text(path));
  expect_equal(events, records);
  EXPECT_THAT(events[2].scalars,
              ElementsAre(Pair("loss/valid", 4.25f), Pair("loss/valid at 128", 3.5f), Pair("loss/valid at 64", 4.0f)));
}

TEST(EventFile, TimeIsThatOfTrainingAndEndsNow) {
  const ScratchDir dir;
  const std::vector<MetricsRecord> records = {{.step = 1, .seconds = 2, .loss = 1},
                                              {.step = 2, .seconds = 12, .loss = 1}};
  const double before = now();
  EventFile file(dir / "tfevents");
  file.write(records);
  file.append({.step = 3, .seconds = 15, .loss = 1});
  const std::vector<Event> events = read_events(read_text(dir / "tfevents"));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_DOUBLE_EQ(events[2].wall_time - events[1].wall_time, 10);
  EXPECT_DOUBLE_EQ(events[3].wall_time - events[2].wall_time, 3);
  EXPECT_GE(events[2].wall_time, before);
  EXPECT_LE(events[2].wall_time, now());
}

TEST(EventFile, MadeAnewItIsTheSameFile) {
  const ScratchDir dir;
  const fs::path path = dir / "tfevents", link = dir / "whoever has it open";
  EventFile file(path);
  file.write({});
  EXPECT_FALSE(fs::exists(path));
  file.append({.step = 1, .seconds = 1, .loss = 2});
  file.append({.step = 2, .seconds = 2, .loss = 1});
  fs::create_hard_link(path, link);
  const std::vector<MetricsRecord> one = {{.step = 1, .seconds = 1, .loss = 2}};
  file.write(one);
  expect_equal(read_events(read_text(link)), one);
  file.write({});
  file.append(one[0]);
  expect_equal(read_events(read_text(link)), one);
}

// Stopped, killed, gone back: what TensorBoard shows is what metrics.jsonl says.
TEST(EventFile, FollowsTheRecordsOfARun) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 6);
  request.train.eval_every = 2, request.train.keep = 10;
  const RunDir run(dir / "run");
  const auto train = [&](int64_t steps) {
    request.train.steps = steps;
    TrainEvents events;
    events.validate = [](Transformer&, const TokenFile&, int64_t, int64_t) { return std::optional(1.5); };
    train_run(test_context(), request, events);
    const std::vector<Event> shown = read_events(read_text(run.events()));
    expect_equal(shown, read_metrics_lines(run));
    return steps_of(shown);
  };
  EXPECT_THAT(train(6), ElementsAre(1, 2, 2, 3, 4, 4, 5, 6, 6));
  // A process killed between its last record and a checkpoint, in the middle of a frame.
  append_text(run.metrics(), "{\"step\":7,\"loss\":1}\n");
  append_text(run.events(), "half a frame");
  EXPECT_THAT(train(7), ElementsAre(1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 7));
  fs::remove(run.events());
  request.resume_step = 4;
  EXPECT_THAT(train(5), ElementsAre(1, 2, 2, 3, 4, 4, 5, 5));
  const RunDir aside = run.abandoned(1);
  const std::vector<Event> given_up = read_events(read_text(aside.events()));
  expect_equal(given_up, read_metrics_lines(aside));
  EXPECT_EQ(given_up.back().step, 7);
}

TEST(EventFile, ADirectoryInItsPlaceIsNamed) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  const RunDir run(dir / "run");
  make_directories(run.events());
  EXPECT_THAT(error_of([&] { train_run(test_context(), small_request(dir / "data", dir / "run", 3), {}); }),
              testing::HasSubstr(run.events().string()));
}

}  // namespace
}  // namespace longshot
