#include "base/groups.h"

#include <gmock/gmock.h>

#include <string>

namespace longshot {
namespace {

// The tree in brackets.
std::string text(const RowGroups& groups) {
  std::vector<std::string> sums(kMostDepth);
  sum_by_groups(
      groups,
      [&](int64_t first, int64_t count, int i) {
        std::string& s = sums[static_cast<size_t>(i)] = "";
        for (int64_t r = first; r < first + count; ++r) s += std::string(1, static_cast<char>('a' + groups.begin + r));
      },
      [&](int into, int from) {
        std::string& s = sums[static_cast<size_t>(into)];
        s = "(" + s + "+" + sums[static_cast<size_t>(from)] + ")";
      });
  return sums[0];
}

TEST(Groups, AreHalvesOfHalves) {
  EXPECT_EQ(text({halved(0, 8, 3)}), "(((a+b)+(c+d))+((e+f)+(g+h)))");
  EXPECT_EQ(text({halved(0, 8, 1)}), "(abcd+efgh)");
  EXPECT_EQ(text({halved(0, 8, 0)}), "abcdefgh");
  EXPECT_EQ(text({halved(0, 5, 3)}), "((a+b)+(c+(d+e)))");
  EXPECT_EQ(text({halved(0, 1, 3)}), "a");
}

// The pieces, each with its own tree, put together as their sums are.
std::string text_of_pieces(const RowGroups& all, int64_t most) {
  std::vector<std::string> sums;
  GroupPieces pieces(all, most);
  while (const auto piece = pieces.next()) {
    EXPECT_LE(piece->count, most);
    std::string own;
    if (piece->groups.plain()) {
      for (int64_t r = 0; r < piece->count; ++r) own += static_cast<char>('a' + piece->first + r);
    } else {
      own = text(piece->groups);
      EXPECT_EQ(piece->groups.end() - piece->groups.begin, piece->count);
    }
    if (piece->goes_on) {
      sums.back() += own;
    } else {
      sums.push_back(own);
    }
    EXPECT_LE(static_cast<int>(sums.size()), depth_of_pieces(all, most));
    for (int m = 0; m < piece->merges && sums.size() > 1; ++m) {
      const std::string last = sums.back();
      sums.pop_back();
      sums.back() = "(" + sums.back() + "+" + last + ")";
    }
  }
  EXPECT_EQ(sums.size(), 1u);
  return sums.front();
}

TEST(Groups, PiecesOfAnySizeMakeTheSameTree) {
  for (const int64_t count : {1, 2, 3, 5, 7, 8, 11, 16, 20}) {
    for (const int levels : {0, 1, 2, 3, 4}) {
      const std::vector<RowGroup> tree = halved(0, count, levels);
      for (int64_t most = 1; most <= count + 1; ++most) {
        EXPECT_EQ(text_of_pieces({tree}, most), text({tree})) << count << " " << levels << " " << most;
      }
    }
  }
  EXPECT_EQ(depth_of_pieces({halved(0, 16, 3)}, 16), 1);
  EXPECT_EQ(depth_of_pieces({halved(0, 16, 3)}, 8), 2);
  EXPECT_EQ(depth_of_pieces({halved(0, 16, 3)}, 1), 4);
}

}  // namespace
}  // namespace longshot
