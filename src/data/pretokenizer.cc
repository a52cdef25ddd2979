#include "data/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/gpt2_split.h"
#include "data/hf_tokenizer.h"

namespace longshot {
namespace {

using Pieces = Pretokenizer::Pieces;

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

struct Match {
  size_t begin, end;
};

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

// Oniguruma, for which these patterns are written, allows a set inside a set, which PCRE2 does not: [a[bc]]
// becomes [abc]. Its \s is Unicode's white space, PCRE2's U+180E too.
std::string flattened(const std::string& pattern, const std::string& origin) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      out += escaped == 's' ? "\\p{White_Space}" : escaped == 'S' ? "\\P{White_Space}" : std::string{c, escaped};
    } else if (c == '[' && depth > 0 && pattern.compare(i, 2, "[:") != 0) {
      require(pattern.compare(i, 2, "[^") != 0,
              "{}: the pre-tokenizer's pattern has a negated set inside a set, which is not supported", origin);
      ++depth;
    } else if (c == ']' && depth > 1 && out.back() != ':') {
      --depth;
    } else {
      require(depth == 0 || pattern.compare(i, 2, "&&") != 0,
              "{}: the pre-tokenizer's pattern intersects sets, which is not supported", origin);
      depth += c == '[' && depth == 0;
      depth -= c == ']' && depth == 1 && out.back() != ':';
      out += c;
    }
  }
  return out;
}

class Regex {
 public:
  Regex(const std::string& text, bool literal, const std::string& origin) {
    const std::string pattern = literal ? text : flattened(text, origin);
    int error = 0;
    PCRE2_SIZE place = 0;
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
    options |= literal ? PCRE2_LITERAL : PCRE2_UCP;
    code_.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &place, nullptr));
    if (!code_) {
      PCRE2_UCHAR why[200];
      pcre2_get_error_message(error, why, sizeof why);
      fail("{}: the pre-tokenizer's pattern is wrong at character {}: {}", origin, place,
           reinterpret_cast<const char*>(why));
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    origin_ = origin;
  }

  std::vector<Match> matches(std::string_view text) const {
    std::vector<Match> found;
    const Data data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at < text.size();) {
      const int count = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NOTEMPTY, data.get(), nullptr);
      if (count == PCRE2_ERROR_NOMATCH) break;
      require(count > 0, "{}: the pre-tokenizer's pattern fails on a text of {} bytes (PCRE2 error {})", origin_,
              text.size(), count);
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
      found.push_back({range[0], range[1]});
      at = range[1];
    }
    return found;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  using Data = std::unique_ptr<pcre2_match_data, Free>;
  std::unique_ptr<pcre2_code, Free> code_;
  std::string origin_;
};

Pretokenizer::Step regex_step(std::shared_ptr<const Regex> regex, Behavior behavior, bool invert) {
  return [regex = std::move(regex), behavior, invert](std::string_view text, Pieces& pieces) {
    cut_at(text, segments(regex->matches(text), text.size(), invert), behavior, pieces);
  };
}

// A step behind ByteLevel sees not the bytes but their stand-ins, one character for each: the byte 0xBD is the number
// U+00BD to it.
Pretokenizer::Step on_stand_ins(Pretokenizer::Step step) {
  return [step = std::move(step)](std::string_view text, Pieces& pieces) {
    const std::string stand_ins = byte_level_text(text);
    Pieces cut;
    step(stand_ins, cut);
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
  const auto add_regex = [&](const std::string& pattern, bool literal, Behavior behavior, bool invert) {
    add_step(regex_step(std::make_shared<Regex>(pattern, literal, origin), behavior, invert));
  };
  if (type == "ByteLevel") {
    add_byte_level(json, origin);
  } else if (type == "Metaspace") {
    add_metaspace(json, origin);
  } else if (type == "Split") {
    require(json.contains("pattern") && json["pattern"].is_object(), "{}: the Split pre-tokenizer has no pattern",
            origin);
    const bool literal = json["pattern"].contains("String");
    add_regex(json["pattern"].value(literal ? "String" : "Regex", ""), literal, behavior_of(json, origin),
              json.value("invert", false));
  } else if (type == "Digits") {
    const bool each = json.value("individual_digits", false);
    add_regex(each ? "\\p{N}" : "\\p{N}+", false, Behavior::kIsolated, false);
  } else if (type == "Punctuation") {
    add_regex("[\\p{P}!-/:-@\\[-`{-~]", false, behavior_of(json, origin), false);
  } else {
    fail("{}: the pre-tokenizer '{}' is not supported (ByteLevel, Split, Digits, Punctuation, Metaspace, Sequence)",
         origin, type);
  }
}

void Pretokenizer::add_step(Step step) {
  if (gpt2_) {  // no longer the last step
    steps_.emplace_back(split_gpt2);
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
    add_step(regex_step(std::make_shared<Regex>(space.replacement, true, origin), Behavior::kMergedWithNext, false));
  metaspace_ = std::move(space);
}

void Pretokenizer::split(std::string_view text, Pieces& pieces, Pieces& scratch) const {
  pieces.assign(1, text);
  for (const Step& step : steps_) {
    scratch.clear();
    for (const std::string_view piece : pieces) step(piece, scratch);
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
