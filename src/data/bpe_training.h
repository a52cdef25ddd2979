// Byte-pair merges learnt from counted pieces: again and again the pair seen most often is joined; of equals
// the one of smaller ids.
#pragma once
#include <vector>

#include "data/bpe.h"
#include "data/word_map.h"

namespace longshot {

// Until there are `tokens` of them besides the bytes, or no pair is seen twice. Ids: the bytes, then what is
// joined, in order; two pairs that join to the same bytes join to one id.
std::vector<Merge> learn_merges(const WordCounts& pieces, size_t tokens);

}  // namespace longshot
