// Byte-pair encoding as a tokenizer.json describes it: over bytes (GPT-2 and its kin), or over characters of which
// unknown ones are spelled in bytes (Llama 2).
#pragma once
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/hf_tokenizer.h"
#include "data/normalizer.h"
#include "data/prefix_tree.h"
#include "data/pretokenizer.h"
#include "data/word_map.h"

namespace longshot {

// What encoding needs; shared by all encoders.
struct BpeModel {
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  BpeSymbols symbols;
  BpeMerges merges;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  WordMap tokens{};            // text of a piece to ids_of, only with ignore_merges
  std::vector<int32_t> ids_of{};
  PrefixTree raw_added{};   // found in text before anything else: not the special ones
  PrefixTree added{};       // found in normalised text
  bool added_span = false;  // one of them has a place inside where text is cut
  // Of characters: what a space becomes ("": nothing else), and whether it begins a piece that is merged on its own, since
  // no merge has it behind anything else.
  std::string space{};
  bool space_begins = false;
};

BpeModel read_bpe_model(const JsonTree& json, const Vocabulary& vocabulary, const std::string& origin);

// The text that each id stands for.
std::vector<std::string> bpe_texts(const BpeModel& model, const Vocabulary& vocabulary);

}  // namespace longshot
