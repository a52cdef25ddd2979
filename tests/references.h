// What the paper's own code made: a small set in the repository (fixtures/README.md) and, where it is present beside it, a larger one.
#pragma once
#include <filesystem>
#include <vector>

namespace longshot {

inline const std::filesystem::path kFixtures = std::filesystem::path(LONGSHOT_SOURCE_DIR) / "tests/fixtures";
inline const std::filesystem::path kLargeReference = std::filesystem::path(LONGSHOT_SOURCE_DIR) / "../shared/reference";

// `cases` where the large set is present, else none.
template <class Case>
std::vector<Case> if_large(std::vector<Case> cases) {
  return std::filesystem::exists(kLargeReference) ? cases : std::vector<Case>{};
}

}  // namespace longshot
