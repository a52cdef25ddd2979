// Byte-pair merges learnt from counted pieces: again and again the pair seen most often is joined; of equals
// the one of smaller ids.
#pragma once
#include <functional>
#include <vector>

#include "data/bpe.h"
#include "data/word_map.h"

namespace longshot {

// Of long work: done, total. It may throw to end it.
using LearnProgress = std::function<void(uint64_t, uint64_t)>;

// Until there are `tokens` of them besides the bytes, or no pair is seen twice. Ids: the bytes, then what is
// joined, in order; two pairs that join to the same bytes join to one id.
std::vector<Merge> learn_merges(
    const WordCounts& pieces, size_t tokens, const LearnProgress& progress = [](uint64_t, uint64_t) {});

}  // namespace longshot
