#include "data/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

constexpr uint64_t kSampled = 128;       // of so many searches the steps of one are counted
constexpr uint64_t kAskEvery = 1 << 20;  // steps
constexpr size_t kStarts = 32;           // places at which one search tries an unknown pattern
constexpr size_t kHarmlessStarts = 1 << 16;
constexpr uint64_t kScanned = 1 << 28;  // bytes that a search uncounted looks at, at most, from one place

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, Free>;
using Data = std::unique_ptr<pcre2_match_data, Free>;

// Oniguruma, for which these patterns are written, allows a set inside a set, which PCRE2 does not: [a[bc]]
// becomes [abc]. Its \s is Unicode's white space, PCRE2's U+180E too.
std::string flattened(const std::string& pattern, const std::string& origin) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      require(escaped != 'G', "{}: the pre-tokenizer's pattern has a \\G, which is not supported", origin);
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
      require(depth > 0 || pattern.compare(i, 2, "(*") != 0,
              "{}: the pre-tokenizer's pattern has a verb, (*..), which is not supported", origin);
      depth += c == '[' && depth == 0;
      depth -= c == ']' && depth == 1 && out.back() != ':';
      out += c;
    }
  }
  return out;
}

Code compiled(const std::string& pattern, uint32_t options, const std::string& origin) {
  int error = 0;
  PCRE2_SIZE place = 0;
  options |= PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_USE_OFFSET_LIMIT;
  Code code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &place, nullptr));
  if (!code) {
    PCRE2_UCHAR why[200];
    pcre2_get_error_message(error, why, sizeof why);
    fail("{}: the pre-tokenizer's pattern is wrong at character {}: {}", origin, place,
         reinterpret_cast<const char*>(why));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

size_t next_character(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

struct PatternBudget::Context {
  std::unique_ptr<pcre2_match_context, Free> match{pcre2_match_context_create(nullptr)};
};

PatternBudget::PatternBudget(const Watch& watch) : watch_(watch), context_(std::make_unique<Context>()) {
  pcre2_set_callout(
      context_->match.get(),
      [](pcre2_callout_block* at, void* budget) {
        return static_cast<PatternBudget*>(budget)->step(at->current_position);
      },
      this);
}

PatternBudget::~PatternBudget() = default;

// Called from within PCRE2, through which no exception goes.
int PatternBudget::step(size_t position) {
  steps_ += 1 + std::max(position, position_) - std::min(position, position_);
  position_ = position;
  if (steps_ > ask_at_) {
    ask_at_ = steps_ + kAskEvery;
    stopped_ = watch_.should_stop();
  }
  return stopped_ || steps_ > granted_ ? PCRE2_ERROR_CALLOUT : 0;
}

// One search of many, until those go beyond what all may spend; from then on every one.
bool PatternBudget::counts_next() {
  if (searches_ % 8 == 0) heed();
  count_all_ = count_all_ || steps_ > granted_ / kSampled;
  return searches_++ % kSampled == 0 || count_all_;
}

// The same pattern twice: as fast as can be, and with a call at each step.
struct SplitPattern::Codes {
  Code quick, counting;
};

SplitPattern::SplitPattern(const std::string& pattern, Kind kind, const std::string& origin)
    : codes_(std::make_unique<Codes>()), origin_(origin) {
  const bool text = kind == Kind::kText;
  const std::string flat = text ? pattern : flattened(pattern, origin);
  const uint32_t options = text ? PCRE2_LITERAL : PCRE2_UCP;
  codes_->quick = compiled(flat, options, origin);
  if (kind == Kind::kUnknown) codes_->counting = compiled(flat, options | PCRE2_AUTO_CALLOUT, origin);
}

SplitPattern::~SplitPattern() = default;

// Of one text.
struct SplitPattern::Search {
  std::string_view text;
  pcre2_match_data* data;
  pcre2_match_context* context;  // with the limit of what is not counted

  int run(const Code& code, size_t from) const {
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NOTEMPTY, data,
                       context);
  }
  uint32_t limit() const { return static_cast<uint32_t>(std::clamp<uint64_t>(kScanned / text.size(), 16, 256)); }
};

// The first match that begins in [from, last]: PCRE2's answer.
int SplitPattern::find(const Search& search, size_t from, size_t last, PatternBudget& budget) const {
  pcre2_set_offset_limit(search.context, last);
  const bool counted = budget.counts_next();
  if (!counted || !codes_->counting) {
    const int answer = search.run(codes_->quick, from);
    if (answer != PCRE2_ERROR_MATCHLIMIT) return answer;
  }
  budget.begin(from);
  pcre2_set_match_limit(search.context, UINT32_MAX);
  const int answer = search.run(codes_->counting, from);
  pcre2_set_match_limit(search.context, search.limit());
  if (budget.stopped_) throw Stopped();
  require(answer != PCRE2_ERROR_CALLOUT,
          "{}: the pre-tokenizer's pattern takes more than {} steps for each byte of a text, and {} more: it goes over "
          "the same characters again and again",
          origin_, PatternBudget::kStepsPerByte, PatternBudget::kFreeSteps);
  return answer;
}

std::vector<SplitPattern::Match> SplitPattern::matches(std::string_view text, PatternBudget& budget) const {
  std::vector<Match> found;
  if (text.empty()) return found;
  const Data data(pcre2_match_data_create_from_pattern(codes_->quick.get(), nullptr));
  const Search search{text, data.get(), budget.context_->match.get()};
  pcre2_set_match_limit(search.context, codes_->counting ? search.limit() : UINT32_MAX);
  const size_t starts = codes_->counting ? kStarts : kHarmlessStarts;
  for (size_t from = 0; from < text.size();) {
    const size_t last = std::min(from + starts, text.size()) - 1;
    const int answer = find(search, from, last, budget);
    if (answer == PCRE2_ERROR_NOMATCH) {
      from = next_character(text, last + 1);
      continue;
    }
    require(answer > 0, "{}: the pre-tokenizer's pattern fails on a text of {} bytes (PCRE2 error {})", origin_,
            text.size(), answer);
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    require(range[0] >= from && range[1] > range[0],
            "{}: the pre-tokenizer's pattern matches backwards, from byte {} to {}", origin_, range[0], range[1]);
    found.push_back({range[0], range[1]});
    from = range[1];
  }
  return found;
}

}  // namespace longshot
