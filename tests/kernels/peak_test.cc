// Forcing an instruction set.
#include "kernels/peak.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace longshot {
namespace {

TEST(InstructionSets, EachCanBeForcedAndLetGo) {
  const std::vector<std::string> all = instruction_sets();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(instruction_set(), all.front());
  for (const std::string& name : all) {
    const ForcedInstructionSet forced(name);
    EXPECT_EQ(instruction_set(), name);
  }
  EXPECT_EQ(instruction_set(), all.front());
  EXPECT_THROW(ForcedInstructionSet("AVX1024"), Error);
}

}  // namespace
}  // namespace longshot
