#include "data/pretokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/gpt2_split.h"
#include "data/hf_tokenizer.h"

namespace longshot {
namespace {

using Pieces = Pretokenizer::Pieces;
using Match = SplitPattern::Match;

constexpr size_t kMostSteps = 16;

// How the matches of a pattern cut a text.
enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

Behavior behavior_of(const JsonTree& json, const std::string& origin) {
  const std::string name = json.value("behavior", "Isolated");
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Contiguous") return Behavior::kContiguous;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  fail("{}: the pre-tokenizer's behavior '{}' is not known", origin, name);
}

// A part of a text: a match, or what lies between two; the other way round where the step inverts its pattern.
struct Segment {
  size_t begin, end;
  bool match;
};

std::vector<Segment> segments(const std::vector<Match>& matches, size_t size, bool invert) {
  std::vector<Segment> out;
  size_t at = 0;
  for (const Match& m : matches) {
    if (at < m.begin) out.push_back({at, m.begin, invert});
    out.push_back({m.begin, m.end, !invert});
    at = m.end;
  }
  if (at < size) out.push_back({at, size, invert});
  return out;
}

// Whether there is no cut between two neighbours.
bool stay_together(const Segment& left, const Segment& right, Behavior behavior) {
  switch (behavior) {
    case Behavior::kContiguous:
      return left.match == right.match;
    case Behavior::kMergedWithPrevious:
      return !left.match && right.match;
    case Behavior::kMergedWithNext:
      return left.match && !right.match;
    default:
      return false;
  }
}

void cut_at(std::string_view text, const std::vector<Segment>& segments, Behavior behavior, Pieces& pieces) {
  for (size_t first = 0, next = 0; first < segments.size(); first = next) {
    next = first + 1;
    while (next < segments.size() && stay_together(segments[next - 1], segments[next], behavior)) ++next;
    if (behavior == Behavior::kRemoved && segments[first].match) continue;
    const size_t begin = segments[first].begin;
    pieces.push_back(text.substr(begin, segments[next - 1].end - begin));
  }
}

Pretokenizer::Step pattern_step(std::shared_ptr<const SplitPattern> pattern, Behavior behavior, bool invert) {
  return
      [pattern = std::move(pattern), behavior, invert](std::string_view text, Pieces& pieces, PatternBudget& budget) {
        cut_at(text, segments(pattern->matches(text, budget), text.size(), invert), behavior, pieces);
      };
}

// A step behind ByteLevel sees not the bytes but their stand-ins, one character for each: the byte 0xBD is the number
// U+00BD to it.
Pretokenizer::Step on_stand_ins(Pretokenizer::Step step) {
  return [step = std::move(step)](std::string_view text, Pieces& pieces, PatternBudget& budget) {
    const std::string stand_ins = byte_level_text(text);
    Pieces cut;
    step(stand_ins, cut, budget);
    const auto characters = [](std::string_view part) {
      return static_cast<size_t>(std::ranges::count_if(part, [](char c) { return (c & 0xC0) != 0x80; }));
    };
    const char* done = stand_ins.data();
    size_t at = 0;  // the byte that `done` stands for
    for (const std::string_view piece : cut) {
      at += characters({done, piece.data()});
      const size_t size = characters(piece);
      pieces.push_back(text.substr(at, size));
      at += size;
      done = piece.data() + piece.size();
    }
  };
}

void split_gpt2(std::string_view text, Pieces& pieces) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const char* next = gpt2::piece_end(at, end);
    pieces.emplace_back(at, static_cast<size_t>(next - at));
    at = next;
  }
}

}  // namespace

Pretokenizer Pretokenizer::gpt2() {
  Pretokenizer p;
  p.gpt2_ = true;
  return p;
}

Pretokenizer Pretokenizer::from_json(const JsonTree& json, const std::string& origin) {
  Pretokenizer p;
  if (json.is_null()) return p;
  require(json.is_object() && json.contains("type"), "{}: the pre_tokenizer has no type", origin);
  if (json["type"] == "Sequence") {
    require(json.contains("pretokenizers") && json["pretokenizers"].is_array(),
            "{}: the pre_tokenizer's Sequence is empty", origin);
    for (const JsonTree& part : json["pretokenizers"]) p.add(part, origin);
  } else {
    p.add(json, origin);
  }
  return p;
}

void Pretokenizer::add(const JsonTree& json, const std::string& origin) {
  const std::string type = json.value("type", "");
  using enum SplitPattern::Kind;
  const auto add_pattern = [&](const std::string& pattern, SplitPattern::Kind kind, Behavior behavior, bool invert) {
    add_step(pattern_step(std::make_shared<SplitPattern>(pattern, kind, origin), behavior, invert), origin);
  };
  if (type == "ByteLevel") {
    add_byte_level(json, origin);
  } else if (type == "Metaspace") {
    add_metaspace(json, origin);
  } else if (type == "Split") {
    require(json.contains("pattern") && json["pattern"].is_object(), "{}: the Split pre-tokenizer has no pattern",
            origin);
    const bool literal = json["pattern"].contains("String");
    add_pattern(json["pattern"].value(literal ? "String" : "Regex", ""), literal ? kText : kUnknown,
                behavior_of(json, origin), json.value("invert", false));
  } else if (type == "Digits") {
    const bool each = json.value("individual_digits", false);
    add_pattern(each ? "\\p{N}" : "\\p{N}+", kHarmless, Behavior::kIsolated, false);
  } else if (type == "Punctuation") {
    add_pattern("[\\p{P}!-/:-@\\[-`{-~]", kHarmless, behavior_of(json, origin), false);
  } else {
    fail("{}: the pre-tokenizer '{}' is not supported (ByteLevel, Split, Digits, Punctuation, Metaspace, Sequence)",
         origin, type);
  }
}

void Pretokenizer::add_step(Step step, const std::string& origin) {
  require(steps_.size() < kMostSteps, "{}: the pre_tokenizer has more than {} steps", origin, kMostSteps);
  if (gpt2_) {  // no longer the last step
    steps_.emplace_back([](std::string_view text, Pieces& pieces, PatternBudget&) { split_gpt2(text, pieces); });
    gpt2_ = false;
  }
  steps_.push_back(byte_level_ ? on_stand_ins(std::move(step)) : std::move(step));
}

void Pretokenizer::add_byte_level(const JsonTree& json, const std::string& origin) {
  require(!byte_level_ && !metaspace_, "{}: a ByteLevel pre-tokenizer behind a {} is not supported", origin,
          metaspace_ ? "Metaspace" : "ByteLevel");
  add_prefix_space_ = json.value("add_prefix_space", true);
  require(!add_prefix_space_ || steps_.empty(),
          "{}: a ByteLevel pre-tokenizer with add_prefix_space behind another one is not supported", origin);
  gpt2_ = json.value("use_regex", true);
  byte_level_ = true;
}

void Pretokenizer::add_metaspace(const JsonTree& json, const std::string& origin) {
  require(steps_.empty() && !byte_level_ && !metaspace_,
          "{}: a Metaspace pre-tokenizer behind another one is not supported", origin);
  Metaspace space;
  space.replacement = json.value("replacement", space.replacement);
  require(!space.replacement.empty(), "{}: Metaspace's replacement is empty", origin);
  const std::string prepend = json.value("prepend_scheme", json.value("add_prefix_space", true) ? "always" : "never");
  using enum Metaspace::Prepend;
  require(prepend == "always" || prepend == "first" || prepend == "never",
          "{}: Metaspace's prepend_scheme '{}' is not known (always, first, never)", origin, prepend);
  space.prepend = prepend == "always" ? kAlways : prepend == "first" ? kFirst : kNever;
  if (json.value("split", true))
    add_step(pattern_step(std::make_shared<SplitPattern>(space.replacement, SplitPattern::Kind::kText, origin),
                          Behavior::kMergedWithNext, false),
             origin);
  metaspace_ = std::move(space);
}

void Pretokenizer::split(std::string_view text, Pieces& pieces, Pieces& scratch, PatternBudget& budget) const {
  pieces.assign(1, text);
  for (const Step& step : steps_) {
    budget.grant(text.size());
    scratch.clear();
    for (const std::string_view piece : pieces) step(piece, scratch, budget);
    pieces.swap(scratch);
  }
  if (!gpt2_) return;
  scratch.clear();
  for (const std::string_view piece : pieces) split_gpt2(piece, scratch);
  pieces.swap(scratch);
}

size_t Pretokenizer::cut(std::string_view text) const {
  // A text that goes on with a space gets none in front.
  const bool blank = add_prefix_space_;
  if (is_gpt2())
    return gpt2::last_cut(
        text, [](gpt2::Kind kind) { return kind != gpt2::Kind::kSpace; }, blank);
  // Patterns seen in the wild keep a word apart from the space behind it, though not always punctuation.
  return gpt2::last_cut(
      text, [](gpt2::Kind kind) { return kind == gpt2::Kind::kLetter || kind == gpt2::Kind::kNumber; }, blank);
}

}  // namespace longshot
