// What must be equal between something that was interrupted and its uninterrupted twin.
#pragma once
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace torture {

namespace fs = std::filesystem;

// What the program did wrong.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string read(const fs::path& path);

// Steps of the checkpoints in a run, ascending.
std::vector<long> checkpoints(const fs::path& run);

// What is half-written or half-removed: names that end in .tmp, .old or .partial.
std::set<fs::path> half_written(const fs::path& dir);

// Weights, optimizer, metrics, events, best.json and config of a run that ended at its last step; nothing else in it but
// what --resume-step gave up.
void expect_same_run(const fs::path& twin, const fs::path& run, long keep);

// A JSON file, or one object per line: equal but for times, memory and the directories' own names.
void expect_same_records(const fs::path& twin, const fs::path& file, const fs::path& twin_dir, const fs::path& dir);

// The last line of a file of records.
void expect_same_last_record(const fs::path& twin, const fs::path& file);

// results.json, the runs and the list of files of a comparison.
void expect_same_comparison(const fs::path& twin, const fs::path& dir);

// All files, byte by byte.
void expect_same_files(const fs::path& twin, const fs::path& dir);

}  // namespace torture
