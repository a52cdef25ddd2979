#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "base/error.h"
#include "context.h"
#include "run/loaded_model.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

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
                           .training = TrainingState{.optimizer = {{"updates", 7}}, .options = Json::object()}});
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
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
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

}  // namespace
}  // namespace longshot
