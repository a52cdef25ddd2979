#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "context.h"
#include "renameat2.h"
#include "run/loaded_model.h"
#include "run/run_writer.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

struct Saved {
  Saved() {
    write_token_set(dir / "data", 600);
    tokenizer = load_tokenizer(dir / "data");
    model = std::make_unique<Transformer>(small_model(), true);
    model->initialize(test_context(), 1);
    moments.resize(model->parameters().values().size());
    for (size_t i = 0; i < moments.size(); ++i) moments[i] = static_cast<float>(i);
    path = dir / "step-00000007";
    save();
  }
  void save() {
    save_checkpoint(path, {.model = *model,
                           .tokenizer = tokenizer.get(),
                           .step = 7,
                           .blocks = {{"first.", moments}},
                           .training = TrainingState{
                               .options = {{"lr", "0.001"}}, .optimizer = {{"updates", 7}}, .data_hash = "0f"}});
  }

  ScratchDir dir;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Transformer> model;
  std::vector<float> moments;
  fs::path path;
};

TEST(Checkpoint, RoundTrip) {
  Saved s;
  const CheckpointInfo info = read_checkpoint(s.path);
  EXPECT_EQ(info.step, 7);
  EXPECT_EQ(info.model.to_json(), s.model->config().to_json());
  EXPECT_EQ(info.tokenizer_hash, s.tokenizer->hash());
  const LoadedModel loaded = load_model(s.path);
  const auto a = loaded.model->parameters().tensors();
  for (size_t t = 0; t < a.size(); ++t) {
    const auto got = loaded.model->parameters().value(t), want = s.model->parameters().value(t);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << a[t].name;
  }
  EXPECT_EQ(loaded.tokenizer->hash(), s.tokenizer->hash());

  ASSERT_TRUE(info.training.has_value());
  EXPECT_EQ(info.training->optimizer.at("updates"), 7);
  std::vector<float> read(s.moments.size());
  load_blocks(s.path, *s.model, {{"first.", read}});
  for (const Tensor& t : s.model->parameters().tensors()) {
    const auto begin = static_cast<ptrdiff_t>(t.offset);
    EXPECT_TRUE(std::equal(read.begin() + begin, read.begin() + begin + t.size, s.moments.begin() + begin)) << t.name;
  }
}

TEST(Checkpoint, EveryDamagedFileIsRefusedByName) {
  Saved s;
  for (const char* name : {kModelFile, kOptimizerFile, "tokenizer.byte.json"}) {
    const std::string whole = read_text(s.path / name);
    std::string damaged = whole;
    damaged[damaged.size() / 2] ^= 1;
    write_atomically(s.path / name, damaged);
    EXPECT_THAT(error_of([&] { read_checkpoint(s.path); }), testing::AllOf(HasSubstr(name), HasSubstr("damaged")));
    write_atomically(s.path / name, whole.substr(0, whole.size() - 1));
    EXPECT_THAT(error_of([&] { read_checkpoint(s.path); }), testing::AllOf(HasSubstr(name), HasSubstr("interrupted")));
    fs::remove(s.path / name);
    EXPECT_THAT(error_of([&] { read_checkpoint(s.path); }), HasSubstr(name));
    write_atomically(s.path / name, whole);
    EXPECT_EQ(read_checkpoint(s.path).step, 7);
  }
  const std::string state = read_text(s.path / kStateFile);
  for (size_t cut = 0; cut < state.size() - 1; cut += 7) {
    write_atomically(s.path / kStateFile, state.substr(0, cut));
    EXPECT_THAT(error_of([&] { read_checkpoint(s.path); }), HasSubstr(kStateFile)) << "cut at " << cut;
  }
}

TEST(Checkpoint, AnotherShapeIsRefusedWithBothShapes) {
  Saved s;
  ModelConfig other = small_model();
  other.ffn = 40;
  Transformer model(other, false);
  EXPECT_THAT(error_of([&] { load_weights(s.path, model); }),
              testing::AllOf(HasSubstr("[128, 32]"), HasSubstr("[40, 32]"), HasSubstr("ffn.in.weight")));
}

// Files of this process may not grow past `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST(Checkpoint, AFailedSaveLeavesTheOldOne) {
  Saved s;
  const auto before = read_text(s.path / kModelFile);
  s.model->parameters().values()[0] += 1;
  {
    const FileSizeLimit limit(before.size() / 2);
    EXPECT_THAT(error_of([&] { s.save(); }), HasSubstr(kModelFile));
  }
  EXPECT_EQ(read_text(s.path / kModelFile), before);
}

TEST(Checkpoint, ALeftOverOfAnUnfinishedSaveIsReplaced) {
  Saved s;
  const auto before = read_text(s.path / kModelFile);
  s.model->parameters().values()[0] += 1;
  std::ofstream(s.path.string() + ".tmp") << "in the way";
  s.save();
  EXPECT_NE(read_text(s.path / kModelFile), before);
  EXPECT_FALSE(fs::exists(s.path.string() + ".tmp"));
}

TEST(Checkpoint, IsReplacedWhetherOrNotNamesCanBeExchanged) {
  for (const bool can : {true, false}) {
    Saved s;
    const auto before = read_text(s.path / kModelFile);
    s.model->parameters().values()[0] += 1;
    can_exchange = can;
    s.save();
    can_exchange = true;
    EXPECT_NE(read_text(s.path / kModelFile), before);
    EXPECT_EQ(read_checkpoint(s.path).step, 7);
    for (const char* left_over : {".tmp", ".old"}) EXPECT_FALSE(fs::exists(s.path.string() + left_over)) << left_over;
  }
}

TEST(Checkpoint, WrongFieldsAreRefusedByName) {
  Saved s;
  const fs::path path = s.path / kStateFile;
  const Json good = read_json(path);
  const auto refused = [&](auto&& change, const std::string& what) {
    Json bad = good;
    change(bad);
    write_json(path, bad);
    EXPECT_THAT(error_of([&] { read_checkpoint(s.path); }), testing::AllOf(HasSubstr(kStateFile), HasSubstr(what)));
  };
  refused([](Json& j) { j["step"] = 1.5; }, "step");
  refused([](Json& j) { j["step"] = 1e30; }, "step");
  refused([](Json& j) { j["step"] = -1; }, "step");
  refused([](Json& j) { j["format"] = (int64_t{1} << 32) + 1; }, "format");
  refused([](Json& j) { j["format"] = 3; }, "format");
  refused([](Json& j) { j["files"] = nullptr; }, "files");
  refused([](Json& j) { j["files"].erase(kModelFile); }, kModelFile);
  refused([](Json& j) { j["files"].erase(kOptimizerFile); }, kOptimizerFile);
  refused([](Json& j) { j["files"]["../step-00000007/model.safetensors"] = j["files"][kModelFile]; }, "plain name");
  refused([](Json& j) { j["files"][kModelFile]["bytes"] = "many"; }, "bytes");
  refused([](Json& j) { j["tokenizer"]["file"] = "../../data/tokenizer.byte.json"; }, "tokenizer.byte.json");
  refused([](Json& j) { j["tokenizer"]["file"] = "/etc/passwd"; }, "/etc/passwd");
  refused([](Json& j) { j["tokenizer"]["hash"] = "not hex"; }, "not hex");
  refused([](Json& j) { j["training"]["seconds"] = "long"; }, "seconds");
  refused([](Json& j) { j["training"]["optimizer"]["updates"] = "7"; }, "updates");
  refused([](Json& j) { j["training"]["options"]["lr"] = 1; }, "lr");
  refused([](Json& j) { j["model"] = 3; }, "model");
  write_json(path, good);
  EXPECT_EQ(read_checkpoint(s.path).step, 7);
}

// What version 1 said of training is not read.
TEST(Checkpoint, TheFirstFormatGivesWeights) {
  Saved s;
  Json state = read_json(s.path / kStateFile);
  state["format"] = 1;
  state.erase("training");
  state.erase("from");
  state["optimizer"] = {{"updates", 7}, {"last_lr", 0.1}};
  state["train"] = {{"lr", "0.1"}, {"seconds", 3.5}};
  write_json(s.path / kStateFile, state);
  const LoadedModel loaded = load_model(s.path);
  EXPECT_EQ(loaded.info.step, 7);
  EXPECT_THAT(error_of([&] { training_of(loaded.info, s.path); }),
              testing::AllOf(HasSubstr("format 1"), HasSubstr("--from " + s.path.string())));
}

TEST(Checkpoint, NumbersThatAreNotFiniteAreNotSaved) {
  Saved s;
  const std::string before = read_text(s.path / kModelFile);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    float& weight = s.model->parameters().values()[5];
    const float good = std::exchange(weight, bad);
    EXPECT_THAT(error_of([&] { s.save(); }), HasSubstr("embed.weight"));
    weight = good;
    s.moments[0] = bad;
    EXPECT_THAT(error_of([&] { s.save(); }), HasSubstr("first."));
    s.moments[0] = 0;
  }
  EXPECT_EQ(read_text(s.path / kModelFile), before);
}

TEST(Checkpoint, ALinkOutOfTheRunIsNotFollowed) {
  ScratchDir dir;
  const RunDir run(dir / "run");
  const auto begin = [&] { RunWriter(run).begin_at(0, 1); };
  make_directories(dir / "elsewhere/step-00000001.tmp");
  make_directories(run.path());
  fs::create_directory_symlink(dir / "elsewhere", run.checkpoints());
  EXPECT_THAT(error_of(begin), testing::HasSubstr("a symbolic link is in the way"));
  EXPECT_TRUE(fs::exists(dir / "elsewhere/step-00000001.tmp"));

  fs::remove(run.checkpoints());
  fs::create_directory_symlink(dir / "elsewhere", run.abandoned(1).path());
  dir.write("elsewhere/config.toml", "of another run");
  EXPECT_NO_THROW(begin());
  EXPECT_EQ(read_text(dir / "elsewhere/config.toml"), "of another run");
}

TEST(Checkpoint, LeftOversOfKilledSavesAreSweptAndNothingElse) {
  ScratchDir dir;
  const RunDir run(dir / "run");
  for (const char* name : {"step-00000007.tmp", "step-00000008", "step-00000008.old", "step-00000009.old", "notes.tmp",
                           "step-x.tmp", "mystep-00000007.tmp"}) {
    make_directories(run.checkpoints() / name);
  }
  sweep_checkpoints(run);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run.checkpoints())) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("step-00000008", "step-00000009", "notes.tmp", "step-x.tmp",
                                                   "mystep-00000007.tmp"));
}

}  // namespace
}  // namespace longshot
