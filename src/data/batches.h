// Training batches: a token stream cut into blocks of `length` targets. Inputs are the targets shifted by one
// across the whole stream; in front of its first token stands the start id. Every token is a target once per
// epoch, in an order that is a function of (seed, epoch). Any step can be asked for directly.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/token_file.h"

namespace longshot {

constexpr int32_t kNoTarget = -1;  // padding behind the last block: not scored

struct Batch {
  int64_t sequences = 0, length = 0;
  std::vector<int32_t> inputs;     // [sequences * length]
  std::vector<int32_t> targets;    // [sequences * length], kNoTarget where there is none
  std::vector<int32_t> doc_start;  // [sequences * length] index in the sequence where the token's document begins
  int64_t target_count() const;
};

class Batches {
 public:
  struct Config {
    int64_t length = 0, sequences = 0;  // of one batch
    uint64_t seed = 0;
    bool document_mask = false;  // fill doc_start; otherwise it is all zeros
  };
  Batches(const TokenFile& tokens, Config config);

  int64_t blocks() const { return blocks_; }    // per epoch
  void fill(int64_t step, Batch& batch) const;  // reuses the batch's memory

 private:
  void fill_block(int64_t block, int64_t row, Batch& batch) const;
  const TokenFile& tokens_;
  Config config_;
  int64_t blocks_;
};

// One row: targets are stream tokens [first, first + count), inputs the same shifted by one; the rest is
// padding.
void fill_row(const TokenFile& tokens, int64_t first, int64_t count, std::span<int32_t> inputs,
              std::span<int32_t> targets);

// For each input of such a row, where its document begins, as an index into the row.
void fill_document_starts(const TokenFile& tokens, int64_t first, std::span<int32_t> starts);

}  // namespace longshot
