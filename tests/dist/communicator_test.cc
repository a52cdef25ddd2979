#include "dist/communicator.h"

#include <gmock/gmock.h>

#include "dist/heartbeat.h"
#include "dist/ranks.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3, 5, 8));

TEST_P(Ranks, AllGetWhatRankZeroHas) {
  const auto errors = on_ranks(GetParam(), [](Communicator& world) {
    EXPECT_EQ(world.broadcast(world.is_root() ? std::string(3000, 'x') + "end" : "mine"),
              std::string(3000, 'x') + "end");
    world.barrier();
    EXPECT_EQ(world.broadcast(std::string()), "");
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Ranks, TextsAreGatheredInOrder) {
  const auto errors = on_ranks(GetParam(), [](Communicator& world) {
    const auto text = [](int rank) { return std::string(static_cast<size_t>(rank), 'a'); };
    const std::vector<std::string> all = world.gather(text(world.rank()));
    ASSERT_EQ(all.size(), static_cast<size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Ranks, AnErrorOfRankZeroIsEverybodys) {
  const auto errors = on_ranks(GetParam(), [](Communicator& world) {
    int calls = 0;
    world.on_root([&] { ++calls; });
    EXPECT_EQ(calls, world.is_root() ? 1 : 0);
    try {
      world.on_root([] { fail_usage("--out: no"); });
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      throw;
    }
  });
  EXPECT_THAT(errors, Each("--out: no"));
}

TEST_P(Ranks, AStopOfRankZeroIsEverybodys) {
  on_ranks(GetParam(), [](Communicator& world) { EXPECT_THROW(world.on_root([] { throw Stopped(); }), Stopped); });
}

TEST_P(Ranks, AnErrorOfAnyIsEverybodys) {
  const int last = GetParam() - 1;
  const auto errors_of = [&](const std::function<void(int)>& f) {
    return on_ranks(GetParam(), [&](Communicator& world) {
      int calls = 0;
      world.on_each([&] {
        ++calls;
        f(world.rank());
      });
      EXPECT_EQ(calls, 1);
    });
  };
  EXPECT_THAT(errors_of([](int) {}), Each(""));
  EXPECT_THAT(errors_of([](int) { fail("no such file"); }), Each("no such file"));
  const auto of_last = [&](int rank) {
    if (rank == last) fail("no such file");
    if (rank == 0) throw Stopped();
  };
  const std::string whose = GetParam() == 1 ? "" : fmt::format("rank {} (thread-{}): ", last, last);
  EXPECT_THAT(errors_of(of_last), Each(whose + "no such file"));
}

TEST_P(Ranks, AStopOfAnyIsEverybodys) {
  on_ranks(GetParam(), [](Communicator& world) {
    EXPECT_THROW(world.on_each([&] {
      if (world.rank() == world.size() - 1) throw Stopped();
    }),
                 Stopped);
  });
}

TEST_P(Ranks, TextsGoFromOneToAnother) {
  const auto errors = on_ranks(GetParam(), [](Communicator& world) {
    for (const std::string& text : {std::string(70000, 'y'), std::string(), std::string("last")}) {
      if (!world.is_root()) world.send_text(0, text + std::to_string(world.rank()));
      for (int r = 1; r < world.size() && world.is_root(); ++r)
        EXPECT_EQ(world.receive_text(r), text + std::to_string(r));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Ranks, TheFirstDifferenceIsNamed) {
  const auto errors = on_ranks(GetParam(), [](Communicator& world) {
    const bool odd = world.rank() == world.size() - 1 && world.size() > 1;
    require_agreement(world, {{"--lr", "0.1"}, {"--dim", odd ? "64" : "32"}, {"version", odd ? "2" : "1"}});
  });
  if (GetParam() == 1) {
    EXPECT_THAT(errors, Each(""));
    return;
  }
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("--dim is 32 on rank 0 (thread-0), but 64 on rank"),
                                 HasSubstr(fmt::format("rank {}", GetParam() - 1)))));
}

TEST(Communicator, ASilentRankIsNamed) {
  const auto errors = on_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) return;
    world.set_patience(0.2);
    world.gather("here");
  });
  EXPECT_EQ(errors[1], "");
  for (const size_t r : {0, 2})
    EXPECT_THAT(errors[r], AllOf(HasSubstr("nothing from rank 1 (thread-1) for"), HasSubstr("--rank-timeout"),
                                 HasSubstr("or does it wait for another that is?")));
}

TEST(Communicator, RankZeroMayWorkForLongerThanTheOthersArePatient) {
  const auto errors = on_ranks(3, [](Communicator& world) {
    world.set_patience(1);
    world.on_root([] { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); });
    EXPECT_EQ(world.gather("on").size(), 3u);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Communicator, ARankThatIsGoneWhileOthersWorkIsNamed) {
  const auto errors = on_ranks(3, [](Communicator& world) {
    world.set_patience(0.2);
    if (world.rank() == 1) return;
    Heartbeat heartbeat(world);
    if (world.is_root()) heartbeat.meet();
    while (true) {
      heartbeat.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  EXPECT_EQ(errors[1], "");
  for (const size_t r : {0, 2}) EXPECT_THAT(errors[r], HasSubstr("nothing from rank 1 (thread-1) for"));
}

TEST(Communicator, ThreadsAndPlacesMayDifferAndNothingElse) {
  const auto errors_of = [](const std::string& option) {
    return on_ranks(2, [&](Communicator& world) {
      std::string data = "here";
      int threads = 1, dim = 32;
      std::vector<OptionTable> variants{{"steep", {{"lr", "0.1"}}}};
      Options options;
      options.add("data", data, ""), options.add("threads", threads, ""), options.add("dim", dim, "");
      options.add_tables("variant", variants, "");
      if (world.rank() == 1 && option == "lr") variants[0].values[0].second = "0.2";
      if (world.rank() == 1 && option != "lr") options.set(option, "7");
      require_same_work(world, options, {{"the text", "same"}});
    });
  };
  for (const char* free : {"data", "threads"}) EXPECT_THAT(errors_of(free), Each(""));
  EXPECT_THAT(errors_of("dim"), Each(HasSubstr("--dim is 32 on rank 0 (thread-0), but 7 on rank 1")));
  EXPECT_THAT(errors_of("lr"), Each(HasSubstr("lr of [variant.steep] is 0.1 on rank 0")));
}

TEST(Communicator, RanksEndTogetherOnlyWithTheSameWords) {
  on_ranks(3, [](Communicator& world) { EXPECT_TRUE(world.all_end_with("no such file", 5)); });
  on_ranks(3,
           [](Communicator& world) { EXPECT_FALSE(world.all_end_with(world.is_root() ? "disk full" : "stopped", 5)); });
  on_ranks(2, [](Communicator& world) {
    if (!world.is_root()) return;
    EXPECT_FALSE(world.all_end_with("disk full", 0.1));
  });
}

// Memory of theirs may be gone: they must not be waited for.
TEST(Communicator, AfterMessagesWereGivenUpNothingMoves) {
  const auto errors = on_ranks(2, [](Communicator& world) {
    {
      std::byte word{};
      const auto given_up = world.transfers();
      given_up->receive(1 - world.rank(), Transfers::kFirstTag, std::span(&word, 1));
    }
    EXPECT_FALSE(world.all_end_with("the same", 5));
    EXPECT_EQ(static_cast<ThreadRank&>(world).sent(), 0);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Communicator, WhatAllGetComesInPartsThatCanBeHeard) {
  const size_t size = (size_t{64} << 20) + 12345;
  const auto errors = on_ranks(3, [&](Communicator& world) {
    std::string text(world.is_root() ? size : 0, 'x');
    if (world.is_root()) text.back() = 'y';
    text = world.broadcast(std::move(text));
    ASSERT_EQ(text.size(), size);
    EXPECT_EQ(text.substr(size - 2), "xy");
    EXPECT_LE(static_cast<ThreadRank&>(world).largest(), int64_t{64} << 20);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Communicator, KnowsWhoStartedIt) {
  ::unsetenv("OMPI_COMM_WORLD_SIZE"), ::unsetenv("PMI_SIZE"), ::unsetenv("SLURM_STEP_NUM_TASKS");
  EXPECT_FALSE(launch());
  EXPECT_TRUE(all_ranks()->is_alone());
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1), ::setenv("SLURM_PROCID", "3", 1);
  EXPECT_EQ(launch()->by, "srun");
  EXPECT_EQ(launch()->rank, 3);
  EXPECT_EQ(launch()->size, 4);
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_TRUE(all_ranks()->is_alone());
  ::unsetenv("SLURM_STEP_NUM_TASKS"), ::unsetenv("SLURM_PROCID");
}

TEST(Communicator, ThreadsAreSharedByTheRanksOfAHost) {
  const int alone_threads = threads_of_rank(*alone());
  EXPECT_GE(alone_threads, 1);
  on_ranks(3, [&](Communicator& world) { EXPECT_EQ(threads_of_rank(world), alone_threads); });  // a host each
}

}  // namespace
}  // namespace longshot
