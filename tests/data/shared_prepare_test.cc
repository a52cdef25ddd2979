// Text encoded by several ranks: the same bytes as by one.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/records.h"
#include "data/prepare.h"
#include "dist/ranks.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

class SharedPrepare : public testing::TestWithParam<int> {
 protected:
  // A chunk is of one file: enough of them for several batches, of which the last turn is not a whole one.
  SharedPrepare() {
    for (int i = 0; i < 53; ++i) {
      std::string text = fmt::format("= Title {} =\n", i);
      for (int word = 0; word < 20 + i; ++word)
        text += fmt::format("w{} and \xC3\xA9t\xC3\xA9 {}\n", word % 7, i * word);
      inputs_.push_back(dir_.file(fmt::format("text-{:02}.txt", i), text));
    }
  }
  PrepareConfig config(const std::string& tokenizer, const std::string& out) const {
    PrepareConfig c;
    c.inputs = inputs_;
    c.tokenizer = tokenizer;
    c.vocab_size = tokenizer == "bpe" ? 300 : 0;
    c.out = (dir_.path() / out).string();
    return c;
  }
  std::map<std::string, std::string> contents(const std::string& set) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(dir_.path() / set))
      files[entry.path().filename().string()] = read_text(entry.path());
    return files;
  }
  // Rank 0's answer; the hooks are its own.
  PrepareResult prepared(const PrepareConfig& c, const PrepareHooks& of_root = {}) const {
    PrepareResult result;
    const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
      Context context(world.is_root() ? 1 : 2);
      PrepareHooks hooks = world.is_root() ? of_root : PrepareHooks();
      hooks.world = &world;
      const PrepareResult own = prepare(context, c, hooks);
      if (world.is_root()) result = own;
    });
    EXPECT_THAT(errors, Each(""));
    return result;
  }
  TemporaryDir dir_;
  std::vector<std::string> inputs_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedPrepare, testing::Values(2, 3, 4));

TEST_P(SharedPrepare, GivesTheBytesOfOneProcess) {
  for (const std::string tokenizer : {"byte", "word", "bpe"}) {
    SCOPED_TRACE(tokenizer);
    Context context(1);
    const PrepareResult one = prepare(context, config(tokenizer, "one-" + tokenizer), {});
    const PrepareResult shared = prepared(config(tokenizer, "shared-" + tokenizer));
    EXPECT_TRUE(shared.finished);
    EXPECT_EQ(shared.vocab_size, one.vocab_size);
    ASSERT_EQ(shared.splits.size(), 3u);
    EXPECT_EQ(shared.splits[0].counts.documents, one.splits[0].counts.documents);
    EXPECT_EQ(contents("shared-" + tokenizer), contents("one-" + tokenizer));
  }
}

TEST_P(SharedPrepare, GoesOnWhereItWasStoppedWithAnyNumberOfRanks) {
  Context context(1);
  prepare(context, config("word", "one"), {});
  const PrepareConfig c = config("word", "set");
  bool encoding = false;
  const PrepareResult stopped =
      prepared(c, {.stop = [&] { return encoding; },
                   .progress = [&](const PrepareProgress& p) { encoding = p.phase == std::string("encoding"); }});
  EXPECT_FALSE(stopped.finished);
  EXPECT_FALSE(fs::exists(dir_.path() / "set"));
  EXPECT_THAT(read_text(dir_.path() / "set.partial" / "job.json"), HasSubstr("\"place\""));
  EXPECT_TRUE(prepared(c).finished);
  EXPECT_EQ(contents("set"), contents("one"));
}

TEST_P(SharedPrepare, AllSayWhichUnfinishedWorkIsDamaged) {
  const PrepareConfig c = config("byte", "set");
  bool encoding = false;
  prepared(c, {.stop = [&] { return encoding; },
               .progress = [&](const PrepareProgress& p) { encoding = p.phase == std::string("encoding"); }});
  const fs::path job = dir_.path() / "set.partial" / "job.json";
  Json json = read_json(job);
  json["place"]["input"] = 1000;
  write_json(job, json);
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
    Context own(1);
    prepare(own, c, {.world = &world});
  });
  EXPECT_THAT(errors, Each(StartsWith(job.string() + ", place: input is 1000")));
}

// Whoever notices first, while it lists files or counts documents.
TEST_P(SharedPrepare, AStopOfOneRankStopsAll) {
  PrepareConfig c = config("word", "set");
  c.inputs = {(dir_.path() / "texts").string()};
  for (const std::string& file : inputs_) {
    make_directories(c.inputs[0]);
    fs::copy(file, c.inputs[0]);
  }
  for (const std::string phase : {"", "counting documents"}) {
    const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
      world.set_patience(2);
      Context own(1);
      PrepareHooks hooks;
      hooks.world = &world;
      bool stops = false;
      if (world.rank() == GetParam() - 1) {
        stops = phase.empty();
        hooks.progress = [&](const PrepareProgress& p) { stops = stops || p.phase == phase; };
      }
      hooks.stop = [&] { return stops; };
      EXPECT_FALSE(prepare(own, c, hooks).finished) << phase;
    });
    EXPECT_THAT(errors, Each("")) << phase;
  }
  EXPECT_TRUE(prepared(c).finished);
}

TEST_P(SharedPrepare, RefusesARecipeBeforeItIsFetched) {
  PrepareConfig c;
  c.recipe = "wikitext-2", c.out = (dir_.path() / "set").string();
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
    Context own(1);
    prepare(own, c,
            {.stop = [] { return true; },
             .progress = [](const PrepareProgress& p) { ADD_FAILURE() << p.phase; },
             .world = &world});
  });
  EXPECT_THAT(errors, Each(HasSubstr("put the text into files")));
}

TEST_P(SharedPrepare, RefusesWhatOneRankAloneCouldRead) {
  PrepareConfig c = config("byte", "set");
  c.inputs = {"-"};
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
    Context own(1);
    prepare(own, c, {.world = &world});
  });
  EXPECT_THAT(errors, Each(HasSubstr("put the text into files")));
}

TEST_P(SharedPrepare, RanksThatWereToldOtherThingsAreNamed) {
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
    Context own(1);
    PrepareConfig c = config("byte", "set");
    if (world.rank() == 1) c.seed = 2;
    prepare(own, c, {.world = &world});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("--seed"), HasSubstr("rank 1"))));
}

}  // namespace
}  // namespace longshot
