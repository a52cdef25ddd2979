// What AMX and AVX512_BF16 do for bf16.cc. On other CPUs there is nothing behind it, and nothing may be called.
#pragma once
#include "kernels/bf16.h"

namespace longshot {

// Asks the system for tiles where that is needed.
bool has_bf16_tiles();
bool has_bf16_pairs();

// REQUIRES for all of these: has_bf16_pairs().
void pack_tile_x86(const TileSource& from, Operand operand, uint16_t* tile);
// C[rows, 16] by dot products of pairs.
void pairs_block(const TileBlock& p);
// Dot products of pairs on registers alone, so many rounds of them. Returns their flops; `sink` keeps the compiler honest.
double pairs_loop(int64_t rounds, float* sink);
// The same of products of tiles. REQUIRES: has_bf16_tiles().
double tiles_loop(int64_t rounds, float* sink);

// Tiles belong to a thread. It has them while this lasts. REQUIRES: has_bf16_tiles().
class AmxSession {
 public:
  AmxSession();
  ~AmxSession();
  AmxSession(const AmxSession&) = delete;
  AmxSession& operator=(const AmxSession&) = delete;
  // C[16 strips, 16 panels], each 1 or 2.
  void block(const TileBlock& p, int64_t strips, int64_t panels);  // NOLINT(*-static): it needs the tiles of a session
};

}  // namespace longshot
