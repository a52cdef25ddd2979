// Runs that share a machine share its cores: two that spin for the same two cores are slower than one after the other.
#pragma once
#include <filesystem>

namespace longshot {

namespace fs = std::filesystem;

// One run among those that a registry file knows of, while it lasts. Each holds a lock on one byte of the file; locks
// end with their process, however it ends. Where the file cannot be had, every run thinks it is alone.
class CoreShare {
 public:
  explicit CoreShare(const fs::path& registry = default_registry());
  CoreShare(CoreShare&& other) noexcept;
  CoreShare& operator=(CoreShare&& other) noexcept;
  ~CoreShare();

  // threads / runs, at least 1. A few system calls.
  int of(int threads) const;

  // In the temporary directory, or in /tmp where TMPDIR names none.
  static fs::path default_registry();

 private:
  int other_runs() const;
  int file_ = -1;
};

}  // namespace longshot
