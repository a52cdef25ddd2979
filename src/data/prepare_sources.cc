#include "data/prepare_sources.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "data/data_bin.h"
#include "data/recipe.h"
#include "data/token_set_dir.h"

namespace longshot {
namespace {

constexpr size_t kFewDocuments = 200;  // fewer are not drawn: a small split could be left without any

}  // namespace

PrepareSources::PrepareSources(const PrepareConfig& config, const std::vector<fs::path>& leave_out,
                               const PrepareHooks& hooks)
    : config_(config),
      hooks_(hooks),
      documents_{config.format, config.document_separator, config.allow_binary},
      tokenizer_(config.tokenizer) {
  const bool listed = !config.train.empty() || !config.valid.empty() || !config.test.empty();
  const bool data_bin = config.inputs.size() == 1 && is_data_bin(config.inputs[0]);
  if (data_bin || !config.recipe.empty()) {
    require_usage(!listed && (data_bin ? config.recipe.empty() : config.inputs.empty()),
                  "a {} brings its own splits: no --train, --valid, --test or INPUT beside it",
                  data_bin ? "data-bin" : "recipe");
    data_bin ? list_data_bin(config.inputs[0]) : list_recipe();
    return;
  }
  require_usage(listed != cut(), "give either --train, --valid and --test, or INPUT.. to be cut by --split");
  const auto& shares = config.split;
  require_usage(!cut() || (shares.size() == 3 && std::ranges::all_of(shares, [](double s) { return s >= 0; }) &&
                           std::abs(std::accumulate(shares.begin(), shares.end(), 0.0) - 1) < 1e-6),
                "--split: three shares that add up to 1 are needed (train,valid,test)");
  list_files(leave_out);
}

void PrepareSources::check() const {
  if (hooks_.stop()) throw Stopped();
}

void PrepareSources::list_files(const std::vector<fs::path>& leave_out) {
  const auto add = [&](const std::vector<std::string>& names, std::optional<int> split) {
    for (const fs::path& path : expand_inputs(names, leave_out, [&] { check(); })) {
      inputs_.push_back({.path = path,
                         .name = path == "-" ? kStandardInput : path.string(),
                         .bytes = fs::is_regular_file(path) ? fs::file_size(path) : 0,
                         .split = split,
                         .cuts = {},
                         .opener = nullptr});
    }
  };
  add(config_.train, 0);
  add(config_.valid, 1);
  add(config_.test, 2);
  add(config_.inputs, std::nullopt);
}

// Its text, words apart by a space: encoding gives back the ids, and documents, words and bytes are found on the way.
void PrepareSources::list_data_bin(const fs::path& dir) {
  data_bin_.emplace(dir);
  splits_ = data_bin_->names();
  for (size_t s = 0; s < splits_.size(); ++s) {
    const TokenFile& ids = data_bin_->split(splits_[s]);
    inputs_.push_back({.path = ids.path(),
                       .name = ids.path().string(),
                       .bytes = static_cast<uint64_t>(ids.size()) * static_cast<uint64_t>(ids.width()),
                       .split = static_cast<int>(s),
                       .cuts = {},
                       .opener = [&ids, this] { return decoded_text(ids, data_bin_->tokenizer()); }});
  }
  tokenizer_ = (dir / "dict.txt").string();
}

void PrepareSources::list_recipe() {
  const Recipe& recipe = find_recipe(config_.recipe);
  fs::path dir = fs::path(config_.out).lexically_normal();
  if (dir.filename().empty()) dir = dir.parent_path();
  dir += ".download";
  const fs::path archive = fetch_recipe(recipe, dir, [&](uint64_t bytes, uint64_t total) {
    hooks_.progress({"downloading", bytes, total});
    return !hooks_.stop();
  });
  if (archive.empty()) throw Stopped();
  for (size_t s = 0; s < recipe.members.size(); ++s) {
    inputs_.push_back({.path = archive,
                       .name = recipe.members[s],
                       .bytes = zipped_size(archive, recipe.members[s]),
                       .split = static_cast<int>(s),
                       .cuts = {},
                       .opener = [archive, member = recipe.members[s]] { return open_zipped(archive, member); }});
  }
}

uint64_t PrepareSources::total_bytes() const {
  uint64_t total = 0;
  for (const DocumentInput& input : inputs_) total += input.bytes;
  return total;
}

bool PrepareSources::wanted(size_t split) const {
  if (cut()) return config_.split[split] > 0;
  return std::ranges::any_of(inputs_,
                             [&](const DocumentInput& input) { return input.split == static_cast<int>(split); });
}

bool PrepareSources::has_pipes() const {
  return std::ranges::any_of(inputs_, [](const DocumentInput& input) { return !fs::is_regular_file(input.path); });
}

std::vector<fs::path> PrepareSources::spool_pipes(const fs::path& dir) {
  std::vector<fs::path> spooled;
  for (DocumentInput& input : inputs_) {
    if (fs::is_regular_file(input.path)) continue;
    const fs::path pipe = std::exchange(input.path, TokenSetDir(dir).pipe(spooled.size()));
    spool(pipe, input.path, [&](uint64_t bytes) {
      hooks_.progress({"reading", bytes, 0});
      check();
    });
    input.bytes = fs::file_size(input.path);
    spooled.push_back(input.path);
  }
  return spooled;
}

// Numbers of the first documents that have text.
std::vector<uint64_t> PrepareSources::first_documents(size_t most) const {
  Documents reader(inputs_, documents_, [](std::string_view text) { return text.size(); });
  std::vector<uint64_t> numbers;
  for (Chunk chunk; numbers.size() < most && reader.next(chunk);) {
    hooks_.progress({"counting documents", reader.raw_bytes(), 0});
    check();
    for (const Segment& segment : chunk.segments) {
      if (segment.starts) numbers.push_back(segment.number);
    }
  }
  return numbers;
}

// Documents are drawn by seed where there are many. Few are cut in their order: those of marked formats as a row; a
// file of plain text, which is one, into its first, middle and last part.
void PrepareSources::plan_cuts() {
  if (!cut() || config_.split_by == SplitBy::kDocument) return;
  const bool separated = !config_.document_separator.empty();
  const auto plain = [&](const DocumentInput& input) { return detect_format(input, documents_) == TextFormat::kText; };
  if (!separated && std::ranges::all_of(inputs_, plain)) {
    if (inputs_.size() < kFewDocuments || config_.split_by == SplitBy::kPosition) cut_by_bytes();
    return;
  }
  const std::vector<uint64_t> numbers = first_documents(kFewDocuments);
  const bool few = numbers.size() < kFewDocuments;
  if (!few && config_.split_by == SplitBy::kAuto) return;
  few && (separated || std::ranges::none_of(inputs_, plain)) ? cut_by_number(numbers) : cut_by_bytes();
}

void PrepareSources::cut_by_bytes() {
  for (DocumentInput& input : inputs_) {
    const auto size = static_cast<double>(text_size(input.path, [&] {
      hooks_.progress({"measuring", 0, 0});
      check();
    }));
    // A part of no share begins behind all text.
    input.cuts = {
        static_cast<uint64_t>(size * config_.split[0]),
        config_.split[2] > 0 ? static_cast<uint64_t>(size * (config_.split[0] + config_.split[1])) : UINT64_MAX};
    if (config_.split[1] == 0 && config_.split[2] == 0) input.cuts[0] = UINT64_MAX;
  }
}

// Every split that is wanted gets a document, where there are enough.
void PrepareSources::cut_by_number(const std::vector<uint64_t>& numbers) {
  const auto n = static_cast<int64_t>(numbers.size());
  const std::vector<double>& shares = config_.split;
  const auto least = [&](size_t s) -> int64_t { return shares[s] > 0; };
  const auto rounded = [&](double share) { return static_cast<int64_t>(std::llround(share * static_cast<double>(n))); };
  if (n < least(0) + least(1) + least(2)) fail("the inputs have only {} documents; {}", n, advice());
  const int64_t first = std::clamp(rounded(shares[0]), least(0), n - least(1) - least(2));
  const int64_t second = std::clamp(rounded(shares[0] + shares[1]), first + least(1), n - least(2));
  for (const int64_t at : {first, second})
    number_cuts_.push_back(at < n ? numbers[static_cast<size_t>(at)] : UINT64_MAX);
}

size_t PrepareSources::split_of(const Segment& segment) const {
  if (segment.split) return static_cast<size_t>(*segment.split);
  if (!number_cuts_.empty()) return segment.number < number_cuts_[0] ? 0 : segment.number < number_cuts_[1] ? 1 : 2;
  const double u = uniform01(random_bits(config_.seed, Stream::kData, segment.number));
  size_t split = u < config_.split[0] ? 0 : u < config_.split[0] + config_.split[1] ? 1 : 2;
  while (config_.split[split] == 0 && split > 0) --split;  // the shares' sum was rounded
  return split;
}

std::string PrepareSources::advice() const {
  if (!cut()) return "its files are empty";
  if (config_.split_by == SplitBy::kDocument)
    return "too few documents to draw it from. --split-by auto cuts them in order.";
  return "there is too little text for --split. Give --train, --valid and --test, or --split 1,0,0.";
}

}  // namespace longshot
