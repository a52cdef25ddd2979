// Runs as a whole: what is refused before anything is written, branches given up, other runs' weights.
#include "train/train_run.h"

#include <gmock/gmock.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "references.h"
#include "run/import_model.h"
#include "train/support.h"

namespace longshot {
namespace {

std::optional<fsblkcnt_t> free_blocks;  // of 4 kB; none: what the file system says

}  // namespace
}  // namespace longshot

// Stands in for the system's own.
extern "C" int statvfs(const char* file, struct statvfs* buf) noexcept {
  struct statfs status {};
  if (::statfs(file, &status) != 0) return -1;
  *buf = {};
  buf->f_frsize = buf->f_bsize = longshot::free_blocks ? 4096 : static_cast<unsigned long>(status.f_bsize);
  buf->f_blocks = status.f_blocks;
  buf->f_bfree = buf->f_bavail = longshot::free_blocks.value_or(status.f_bavail);
  return 0;
}

namespace longshot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Words whose vocabularies are of one size and yet not the same.
const TokenizerFile kWords{"tokenizer.dict.txt", "the 9\nsea 5\nriver 4\n"};
const TokenizerFile kOtherWords{"tokenizer.dict.txt", "the 9\nriver 5\nsea 4\n"};

// Every file below a directory with its content.
std::map<std::string, std::string> content_of(const fs::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files[entry.path().string()] = read_text(entry.path());
  }
  return files;
}

struct ATrainedRun {
  ATrainedRun() {
    write_token_set(dir / "data", 700);
    request = small_request(dir / "data", dir / "run", 6);
    trained(request);
  }
  ScratchDir dir;
  TrainRequest request;
};

TEST(TrainRun, ResumesInBf16BitForBit) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest whole = small_request(dir / "data", dir / "whole", 6),
               parts = small_request(dir / "data", dir / "parts", 6);
  whole.train.precision = parts.train.precision = Precision::kBf16;
  trained(parts, 4);
  const TrainedRun resumed = trained(parts), uninterrupted = trained(whole);
  EXPECT_EQ(resumed.weights, uninterrupted.weights);
  EXPECT_NE(trained(small_request(dir / "data", dir / "floats", 6)).weights, uninterrupted.weights);
  EXPECT_EQ(test_context().precision(), Precision::kF32);
}

TEST(TrainRun, AnotherPrecisionIsSaidAloud) {
  const ATrainedRun r;
  TrainRequest more = r.request;
  more.train.steps = 8;
  std::string notes;
  TrainEvents events;
  events.on_note = [&](const std::string& note) { notes += note + "\n"; };
  train_run(test_context(), more, events);
  EXPECT_EQ(notes, "");
  more.train.steps = 9, more.train.precision = Precision::kBf16;
  train_run(test_context(), more, events);
  EXPECT_THAT(notes, HasSubstr("trained in f32 until step 8, in bf16 from now on"));
}

// A process that was killed while it began to move a branch aside.
TEST(TrainRun, ABranchWithoutCheckpointsIsSweptAway) {
  const ATrainedRun r;
  const RunDir run(r.dir / "run"), aside = run.abandoned(1);
  make_directories(aside.checkpoints());
  fs::copy_file(run.config(), aside.config());
  fs::copy_file(run.metrics(), aside.metrics());
  for (fs::path unfinished : {aside.config(), aside.metrics()}) fs::copy_file(run.metrics(), unfinished += ".tmp");
  TrainRequest more = r.request;
  more.train.steps = 7;
  trained(more);
  EXPECT_FALSE(fs::exists(aside.path()));
  more.resume_step = 6, more.train.steps = 8;
  trained(more);
  EXPECT_EQ(checkpoint_steps(aside), std::vector<int64_t>{7});
  const auto branch = content_of(aside.path());
  more.resume_step = 0, more.train.steps = 9;
  trained(more);
  EXPECT_EQ(content_of(aside.path()), branch);  // a branch with checkpoints stays
}

TEST(TrainRun, ARefusedResumeChangesNothing) {
  ATrainedRun r;
  const auto before = content_of(r.dir / "run");
  const auto refused = [&](auto&& change, const std::string& option) {
    TrainRequest other = r.request;
    other.train.steps = 9;
    change(other);
    EXPECT_THAT(error_of([&] { train_run(test_context(), other, {}); }), HasSubstr(option));
    EXPECT_EQ(content_of(r.dir / "run"), before) << option;
  };
  refused([](TrainRequest& t) { t.train.optimizer.optimizer = OptimizerKind::kNag; }, "--optimizer is nag");
  refused([](TrainRequest& t) { t.train.schedule.lr = 1; }, "--lr is 1");
  refused([](TrainRequest& t) { t.train.schedule.schedule = Schedule::kLinear; }, "--schedule is linear");
  refused([](TrainRequest& t) { t.train.seed = 2; }, "--seed is 2");
  refused([](TrainRequest& t) { t.train.batch_tokens = 240; }, "--batch-tokens is 240");
  refused([](TrainRequest& t) { t.model.heads = 2; }, "--heads is 2");
  refused([](TrainRequest& t) { t.model.dropout = 0.5; }, "--dropout is 0.5");
  refused([](TrainRequest& t) { t.from = "elsewhere"; }, "--from is elsewhere");
  refused([](TrainRequest& t) { t.resume_step = 5; }, "no checkpoint of step 5");
  refused([](TrainRequest& t) { t.resume = false; }, "holds a run already");
}

TEST(TrainRun, WhatMayChangeOnResumeDoes) {
  ATrainedRun r;
  TrainConfig& t = r.request.train;
  t.steps = 9, t.save_every = 4, t.save_minutes = 3, t.eval_every = 5, t.log_every = 3, t.keep = 1;
  t.max_seconds = 1000, t.recompute = true, t.micro_batch_tokens = 0;
  EXPECT_EQ(trained(r.request).result.step, 9);
}

TEST(TrainRun, OtherTextIsRefused) {
  ATrainedRun r;
  r.request.train.steps = 9;
  write_token_set(r.dir / "data", small_text(650));
  EXPECT_THAT(error_of([&] { train_run(test_context(), r.request, {}); }),
              AllOf(HasSubstr("other text"), HasSubstr("--from")));
}

TEST(TrainRun, AnotherTokenizerIsRefused) {
  const ScratchDir dir;
  write_token_set(dir / "data", small_text(3000), kWords);
  TrainRequest request = small_request(dir / "data", dir / "run", 3);
  trained(request);
  write_token_set(dir / "data", small_text(3000), kOtherWords);
  request.train.steps = 6;
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }), HasSubstr("tokenizer"));
  request.from = request.out, request.out = (dir / "tuned").string();
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }), HasSubstr("tokenizer"));
  EXPECT_FALSE(fs::exists(dir / "tuned"));
}

TEST(TrainRun, GoingBackMovesTheLaterBranchAside) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 12);
  request.train.save_every = 2, request.train.eval_every = 4, request.train.keep = 10;
  const auto losses = [](std::vector<double> values) {
    TrainEvents events;
    events.validate = [values, at = size_t{0}](Transformer&, const TokenFile&, int64_t, int64_t) mutable {
      return std::optional(values.at(at++));
    };
    return events;
  };
  train_run(test_context(), request, losses({3, 2, 1}));  // of steps 4, 8, 12
  const RunDir run(dir / "run");
  ASSERT_EQ(read_best(run)->step, 12);
  const std::string best_weights = read_text(run.checkpoint(12) / kModelFile);
  const std::string curve = read_text(run.metrics());

  TrainRequest back = request;
  back.resume_step = 6, back.train.keep = 2;
  TrainEvents events = losses({2.5});
  int64_t done = 0;
  events.on_step = [&](const StepReport& s) { done = s.metrics.step; };
  events.should_stop = [&] { return done == 9; };
  EXPECT_EQ(train_run(test_context(), back, events).step, 9);
  // The new branch stands, and what was validated on it.
  EXPECT_THAT(checkpoint_steps(run), ElementsAre(8, 9));
  EXPECT_EQ(read_best(run)->step, 8);
  EXPECT_EQ(read_best(run)->valid_loss, 2.5);
  // The old one is a run of its own.
  const RunDir aside = run.abandoned(1);
  EXPECT_THAT(checkpoint_steps(aside), ElementsAre(8, 10, 12));
  EXPECT_EQ(read_best(aside)->step, 12);
  EXPECT_EQ(read_text(find_checkpoint(aside.path()) / kModelFile), best_weights);
  EXPECT_EQ(read_text(aside.metrics()), curve);
  EXPECT_TRUE(fs::exists(aside.config()));
  // The end is that of the uninterrupted run.
  request.out = (dir / "whole").string();
  const TrainedRun whole = trained(request);
  back.resume_step = 0;
  EXPECT_EQ(trained(back).weights, whole.weights);
}

TEST(TrainRun, WithoutTheBestTheNextBestOfThePresentBranchCounts) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 6);
  request.train.save_every = 2, request.train.eval_every = 2, request.train.keep = 10;
  TrainEvents events;
  events.validate = [at = 10.0](Transformer&, const TokenFile&, int64_t, int64_t) mutable {
    return std::optional(at -= 1);
  };
  train_run(test_context(), request, events);
  request.resume_step = 4;
  events.should_stop = [] { return true; };
  train_run(test_context(), request, events);
  EXPECT_EQ(read_best(RunDir(dir / "run"))->step, 4);
}

TEST(TrainRun, WhatAKillBehindAValidationLeftIsPutRightByResume) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 6);
  request.train.save_every = 3, request.train.eval_every = 3, request.train.keep = 1;
  const RunDir run(dir / "run");
  TrainEvents events;
  events.validate = [&, loss = 9.0](Transformer&, const TokenFile&, int64_t, int64_t) mutable {
    if (!fs::exists(run.checkpoint(6))) fs::copy(run.checkpoint(3), dir / "older", fs::copy_options::recursive);
    return std::optional(loss -= 1);
  };
  train_run(test_context(), request, events);
  const auto whole = content_of(run.path());
  ASSERT_EQ(read_best(run)->step, 6);

  request.resume = true;
  write_atomically(run.best(), R"({"step":3,"valid_loss":8})");  // killed before it was written again,
  fs::rename(dir / "older", run.checkpoint(3));                  // and before what is too much was removed
  train_run(test_context(), request, events);
  for (const auto& [file, content] : content_of(run.path())) {
    if (file == run.events().string()) continue;  // it holds the time of day
    EXPECT_TRUE(whole.contains(file) && whole.at(file) == content) << file;
  }
}

TEST(TrainRun, AMalformedBestIsToldBeforeTraining) {
  ATrainedRun r;
  r.request.train.steps = 9;
  write_atomically(RunDir(r.dir / "run").best(), "{\"step\": \"six\"}");
  int steps = 0;
  TrainEvents events;
  events.on_step = [&](const StepReport&) { ++steps; };
  EXPECT_THAT(error_of([&] { train_run(test_context(), r.request, events); }),
              AllOf(HasSubstr("best.json"), HasSubstr("step")));
  EXPECT_EQ(steps, 0);
}

TEST(TrainRun, OneTrainerAtATime) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TrainRequest request = small_request(dir / "data", dir / "run", 3);
  std::string second;
  TrainEvents events;
  events.on_step = [&](const StepReport&) { second = error_of([&] { train_run(test_context(), request, {}); }); };
  EXPECT_TRUE(train_run(test_context(), request, events).finished);
  EXPECT_THAT(second, AllOf(HasSubstr("another process"), HasSubstr(std::to_string(::getpid()))));
  EXPECT_FALSE(fs::exists(dir / "run" / ".lock"));
}

TEST(TrainRun, ForeignFilesAreLeftAlone) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TrainRequest request = small_request(dir / "data", dir / "mine", 3);
  make_directories(dir / "mine");
  write_atomically(dir / "mine" / "thesis.tex", "ten years");
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }), HasSubstr("thesis.tex"));
  fs::remove(dir / "mine" / "thesis.tex");
  write_atomically(dir / "mine" / "config.toml", "server = 1\n");
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }), HasSubstr("not written by Longshot"));
  EXPECT_EQ(read_text(dir / "mine" / "config.toml"), "server = 1\n");
  EXPECT_FALSE(fs::exists(dir / "mine" / ".lock"));
  TrainRequest wrong = small_request(dir / "data", dir / "new", 3);
  wrong.from = (dir / "mine").string();
  EXPECT_NE(error_of([&] { train_run(test_context(), wrong, {}); }), "");
  EXPECT_FALSE(fs::exists(dir / "new"));
}

TEST(TrainRun, WhatCannotBeValidatedIsToldBeforeTraining) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  fs::remove(dir / "data" / "valid.tokens");
  TrainRequest request = small_request(dir / "data", dir / "run", 3);
  request.train.eval_every = 2;
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }), HasSubstr("--eval-every"));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(TrainRun, AShortRunHasAShortWarmUp) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 50);
  request.train.schedule.warmup.reset();
  trained(request, 3);
  EXPECT_THAT(read_text(RunDir(dir / "run").config()), HasSubstr("warmup = 5\n"));
  request.train.steps = 60, request.train.schedule.warmup = 5;  // as config.toml says
  EXPECT_EQ(trained(request, 6).result.step, 6);
}

TEST(TrainRun, LargeSeedsSurviveTheConfigFile) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 3);
  request.train.seed = UINT64_MAX;
  trained(request);
  TrainRequest again;
  Options options;
  again.fields(options);
  options.load_toml(RunDir(dir / "run").config());
  EXPECT_EQ(again.train.seed, UINT64_MAX);
}

TEST(TrainRun, FromAnotherRunsWeights) {
  const ATrainedRun r;
  write_token_set(r.dir / "other", small_text(900).substr(200));
  TrainRequest request = small_request(r.dir / "other", r.dir / "tuned", 4);
  request.from = r.request.out, request.model.length = 48, request.model.dropout = 0.1;
  std::vector<float> first;
  TrainEvents events;
  events.on_start = [&](const Trainer&, Transformer& model, int64_t) {
    first.assign(model.parameters().values().begin(), model.parameters().values().end());
  };
  EXPECT_TRUE(train_run(test_context(), request, events).finished);
  LoadedModel source = load_model(r.request.out);
  EXPECT_TRUE(std::ranges::equal(first, source.model->parameters().values()));
  const CheckpointInfo info = read_checkpoint(RunDir(r.dir / "tuned").checkpoint(4));
  ASSERT_TRUE(info.from.has_value());
  EXPECT_EQ(info.from->run, r.request.out);
  EXPECT_EQ(info.from->step, 6);
  EXPECT_EQ(info.from->weights, source.info.weights);
  // Taken up again it needs its source no more.
  fs::remove_all(r.request.out);
  request.train.steps = 6;
  EXPECT_EQ(trained(request).result.step, 6);
}

TEST(TrainRun, FromRefusesWhatWouldChangeTheWeightsMeaning) {
  const ATrainedRun r;
  TrainRequest request = small_request(r.dir / "data", r.dir / "tuned", 4);
  request.from = r.request.out, request.model.heads = 2;
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }),
              AllOf(HasSubstr("--heads is 2"), HasSubstr("with 4")));
  EXPECT_FALSE(fs::exists(r.dir / "tuned"));
}

TEST(TrainRun, LearnedPositionsStayAtTheirLength) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 3);
  request.model = small_model("learned");
  trained(request);
  request.from = request.out, request.out = (dir / "longer").string(), request.model.length = 48;
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }),
              AllOf(HasSubstr("--length 48"), HasSubstr("[24, 32]")));
}

TEST(TrainRun, OptionsOfTheSourceStandBelowThoseGiven) {
  const ATrainedRun r;
  TrainRequest request;
  Options options;
  request.fields(options);
  request.from = r.request.out;
  apply_implied_options(request, options);
  EXPECT_EQ(request.model.dim, 32);
  EXPECT_EQ(request.model.length, 24);
  EXPECT_EQ(request.train.steps, 1000) << "how it was trained is no property of the weights";
}

TEST(TrainRun, ResumingFromADamagedOneOffersTheOneBefore) {
  ATrainedRun r;
  const RunDir run(r.dir / "run");
  ASSERT_THAT(checkpoint_steps(run), ElementsAre(3, 6));
  const fs::path victim = run.checkpoint(6) / kModelFile;
  write_atomically(victim, read_text(victim).substr(0, 100));
  EXPECT_THAT(error_of([&] { train_run(test_context(), r.request, {}); }),
              AllOf(HasSubstr("interrupted"), HasSubstr("Move " + run.checkpoint(6).string() + " away"),
                    HasSubstr("from step 3")));
  fs::rename(run.checkpoint(6), r.dir / "damaged");
  EXPECT_EQ(trained(r.request).result.updates, 3);
}

TEST(TrainRun, ARenamedCheckpointIsNotTakenForAnothers) {
  ATrainedRun r;
  const RunDir run(r.dir / "run");
  fs::rename(run.checkpoint(6), run.checkpoint(5));
  EXPECT_THAT(error_of([&] { train_run(test_context(), r.request, {}); }),
              AllOf(HasSubstr("its state is of step 6"), HasSubstr("from step 3")));
}

TEST(TrainRun, WithoutASoundCheckpointTrainingBeginsAnew) {
  ATrainedRun r;
  const RunDir run(r.dir / "run");
  fs::remove_all(run.checkpoint(3));
  fs::remove(run.checkpoint(6) / kModelFile);
  EXPECT_THAT(error_of([&] { train_run(test_context(), r.request, {}); }), HasSubstr("begins anew"));
  fs::rename(run.checkpoint(6), r.dir / "damaged");
  EXPECT_EQ(trained(r.request).result.updates, 6);
}

TEST(TrainRun, ChangedTokensAreToldBeforeTraining) {
  for (const char* split : {"train", "valid"}) {
    const ScratchDir dir;
    write_token_set(dir / "data", 700);
    const fs::path path = dir / "data" / (std::string(split) + ".tokens");
    std::string bytes = read_text(path);
    bytes[72] ^= 1;  // the first id: another byte of the vocabulary
    write_atomically(path, bytes);
    TrainEvents events;
    events.validate = [](Transformer&, const TokenFile&, int64_t, int64_t) { return std::optional(1.0); };
    EXPECT_THAT(error_of([&] { train_run(test_context(), small_request(dir / "data", dir / "run", 3), events); }),
                AllOf(HasSubstr(path.string()), HasSubstr("damaged")));
    EXPECT_FALSE(fs::exists(dir / "run"));
  }
}

TEST(TrainRun, WithoutRoomForACheckpointNothingBegins) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TrainRequest request = small_request(dir / "data", dir / "run", 3);
  free_blocks = 1;
  EXPECT_THAT(error_of([&] { train_run(test_context(), request, {}); }),
              AllOf(HasSubstr("a checkpoint takes 1 MB"), HasSubstr("0 MB are free")));
  EXPECT_FALSE(fs::exists(dir / "run" / "config.toml"));
  free_blocks = 1000;
  EXPECT_TRUE(train_run(test_context(), request, {}).finished);
  free_blocks.reset();
}

// Embeddings of imported models often have more rows than there are tokens.
TEST(TrainRun, GoesOnFromAModelWithMoreRowsThanTokens) {
  const ScratchDir dir;
  fs::copy(kFixtures / "hf/mpt", dir / "hf", fs::copy_options::recursive);
  std::string words = "[UNK]\n[SEP]\n";
  for (char c = 'a'; c <= 'z'; ++c) words += std::string(1, c) + "\n##" + c + "\n";
  dir.write("hf/vocab.txt", words);
  import_hf(dir / "hf", RunDir(dir / "imported"));
  write_token_set(dir / "data", small_text(2000), {.name = "vocab.txt", .text = words});

  LoadedModel loaded = load_model(dir / "imported");
  ASSERT_EQ(loaded.tokenizer->vocab_size(), 54);
  ASSERT_EQ(loaded.info.model.vocab, 61);
  EXPECT_EQ(loaded.tokenizer->decode(std::vector<int32_t>{2, 60}), loaded.tokenizer->decode(std::vector<int32_t>{2}));
  EXPECT_EQ(loaded.tokenizer->token(60), "<padding 60>");
  EXPECT_THAT(error_of([&] { loaded.tokenizer->decode(std::vector<int32_t>{61}); }), HasSubstr("id 61 is outside"));
  ModelVocabulary vocabulary = vocabulary_of(loaded.info, loaded.dir, "imported");
  const TokenSet set(dir / "data");
  EXPECT_NO_THROW(require_same_tokenizer(set, vocabulary));
  vocabulary.tokenizer_hash = 0, vocabulary.size = 5000;
  EXPECT_THAT(error_of([&] { require_same_tokenizer(set, vocabulary); }), HasSubstr("the model knows 5000 tokens"));

  TrainRequest request = small_request(dir / "data", dir / "run", 3);
  request.from = (dir / "imported").string();
  request.model = loaded.info.model, request.model.length = 24;
  EXPECT_TRUE(train_run(test_context(), request, {}).finished);
  request.train.steps = 4;
  EXPECT_TRUE(train_run(test_context(), request, {}).finished);
  EXPECT_EQ(load_model(dir / "run").info.model.vocab, 61);
}

}  // namespace
}  // namespace longshot
