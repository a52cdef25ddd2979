#include "dist/group.h"

#include <gmock/gmock.h>

#include "dist/heartbeat.h"
#include "dist/ranks.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Division {
  int ranks, size;
};
class Groups : public testing::TestWithParam<Division> {};
INSTANTIATE_TEST_SUITE_P(Divisions, Groups, testing::Values(Division{4, 2}, Division{6, 3}, Division{3, 3}),
                         [](const auto& d) { return fmt::format("{}of{}", d.param.size, d.param.ranks); });

TEST_P(Groups, TalkAmongThemselvesWhileTheWorldsHeartbeatGoesOn) {
  const auto [ranks, size] = GetParam();
  const auto errors = on_ranks(ranks, [size = size](Communicator& world) {
    world.set_patience(5);
    const std::unique_ptr<Communicator> group = group_of(world, size);
    EXPECT_EQ(group->size(), size);
    EXPECT_EQ(group->patience(), world.patience());
    const int first = world.rank() - group->rank();
    const std::string own = fmt::format("from {}", first);
    std::vector<std::string> members;
    for (int r = first; r < first + size; ++r) members.push_back(std::to_string(r));
    Heartbeat heartbeat(world);
    for (int i = 0; i < 20; ++i) {
      group->on_root([&] { EXPECT_EQ(world.rank() % size, 0); });
      EXPECT_EQ(group->broadcast(group->is_root() ? own : ""), own);
      EXPECT_EQ(group->gather(std::to_string(world.rank())), members);
      group->barrier();
    }
    heartbeat.meet();
    EXPECT_EQ(world.gather("here").size(), static_cast<size_t>(world.size()));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Group, MessagesOfTheWorldWithTheSameTagAreOthers) {
  const auto errors = on_ranks(4, [](Communicator& world) {
    constexpr int kTag = Transfers::kFirstTag;
    const std::unique_ptr<Communicator> group = group_of(world, 2);
    const char of_world = 'w', of_group = 'g';
    const auto wide = world.transfers(), near = group->transfers();
    wide->send(world.rank() ^ 1, kTag, std::as_bytes(std::span(&of_world, 1)));
    near->send(group->rank() ^ 1, kTag, std::as_bytes(std::span(&of_group, 1)));
    const auto receive = [](Communicator& who, Transfers& transfers) {
      char got = 0;
      transfers.receive(who.rank() ^ 1, kTag, std::as_writable_bytes(std::span(&got, 1)));
      who.wait(transfers);
      return got;
    };
    EXPECT_EQ(receive(*group, *near), 'g');
    EXPECT_EQ(receive(world, *wide), 'w');
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Group, ASilentRankIsNamedByItsPlaceInTheWorldToo) {
  const auto errors = on_ranks(4, [](Communicator& world) {
    world.set_patience(0.2);
    if (world.rank() != 3) group_of(world, 2)->barrier();
  });
  EXPECT_THAT(errors[2], AllOf(HasSubstr("rank 0 (thread-2, rank 2 of all) has heard nothing"),
                               HasSubstr("from rank 1 (thread-3, rank 3 of all)")));
  EXPECT_EQ(errors[0], "");
}

TEST(Group, ADivisionThatDoesNotFitIsRefusedWithBothNumbers) {
  EXPECT_THAT(on_ranks(4, [](Communicator& world) { group_of(world, 3); }),
              Each("--ranks-per-model 3 must divide the number of ranks, which is 4"));
  EXPECT_THAT(on_ranks(2, [](Communicator& world) { group_of(world, 0); }), Each(HasSubstr("which is 2")));
  EXPECT_THAT(on_ranks(1, [](Communicator& world) { group_of(world, 2); }), Each(HasSubstr("which is 1")));
  EXPECT_THAT(on_ranks(2, [](Communicator& world) { EXPECT_TRUE(group_of(world, 1)->is_alone()); }), Each(""));
}

}  // namespace
}  // namespace longshot
