#include "data/batches.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

namespace longshot {

int64_t Batch::target_count() const {
  return static_cast<int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), kNoTarget);
}

Batches::Batches(const TokenFile& tokens, Config config) : tokens_(tokens), config_(config) {
  require_usage(config.length > 0 && config.sequences > 0, "length ({}) and sequences per batch ({}) must be positive",
                config.length, config.sequences);
  require(tokens.size() > 0, "{}: there are no tokens to train on", tokens.path().string());
  blocks_ = (tokens.size() + config.length - 1) / config.length;
}

void Batches::fill(int64_t step, Batch& batch) const {
  batch.sequences = config_.sequences;
  batch.length = config_.length;
  const auto size = static_cast<size_t>(config_.sequences * config_.length);
  batch.inputs.resize(size);
  batch.targets.resize(size);
  batch.doc_start.assign(size, 0);
  for (int64_t row = 0; row < config_.sequences; ++row) {
    const auto sequence = static_cast<uint64_t>(step * config_.sequences + row);
    const auto blocks = static_cast<uint64_t>(blocks_);
    const uint64_t epoch = sequence / blocks;
    const uint64_t key = random_bits(config_.seed, Stream::kData, epoch);
    fill_block(static_cast<int64_t>(permute(sequence % blocks, blocks, key)), row, batch);
  }
}

void Batches::fill_block(int64_t block, int64_t row, Batch& batch) const {
  const int64_t first = block * config_.length;
  const int64_t count = std::min(config_.length, tokens_.size() - first);
  const auto at = static_cast<size_t>(row * config_.length), length = static_cast<size_t>(config_.length);
  fill_row(tokens_, first, count, std::span(batch.inputs).subspan(at, length),
           std::span(batch.targets).subspan(at, length));
  if (config_.document_mask) fill_document_starts(tokens_, first, std::span(batch.doc_start).subspan(at, length));
}

// Input t of the row is stream token first + t - 1; its document is the last one starting at or before it. The start
// id in front of the stream belongs to the first document that has tokens.
void fill_document_starts(const TokenFile& tokens, int64_t first, std::span<int32_t> starts) {
  const auto documents = tokens.documents();
  for (size_t t = 0; t < starts.size(); ++t) {
    const auto token = static_cast<uint64_t>(std::max<int64_t>(first + static_cast<int64_t>(t) - 1, 0));
    const auto next = std::upper_bound(documents.begin(), documents.end(), token);
    const bool at_front = next == documents.begin() || *(next - 1) == 0;
    const int64_t start = at_front ? -1 : static_cast<int64_t>(*(next - 1));
    starts[t] = static_cast<int32_t>(std::max<int64_t>(start - (first - 1), 0));
  }
}

void fill_row(const TokenFile& tokens, int64_t first, int64_t count, std::span<int32_t> inputs,
              std::span<int32_t> targets) {
  const auto n = static_cast<size_t>(count);
  tokens.read(first, targets.first(n));
  std::fill(targets.begin() + count, targets.end(), kNoTarget);
  if (first > 0) {
    tokens.read(first - 1, inputs.first(1));
  } else {
    inputs[0] = tokens.start_id();
  }
  std::copy_n(targets.begin(), n - 1, inputs.begin() + 1);
  std::fill(inputs.begin() + count, inputs.end(), inputs[0]);
}

}  // namespace longshot
