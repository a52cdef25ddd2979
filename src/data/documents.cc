#include "data/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr size_t kLargest = 128 << 20;    // of a text that nothing cuts, and of a line of .jsonl
constexpr size_t kHead = 1 << 14;         // looked at to tell the format
constexpr size_t kLongestMark = 1 << 16;  // of a line that begins a document
constexpr std::string_view kBom = "\xEF\xBB\xBF";

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && space_of(line.front()) == Space::kYes) line.remove_prefix(1);
  while (!line.empty() && space_of(line.back()) == Space::kYes) line.remove_suffix(1);
  return line;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_json_name(fs::path path) {
  for (const char* suffix : {".gz", ".zst", ".xz"}) {
    if (path.extension() == suffix) path.replace_extension();
  }
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

bool starts_with_title(std::string_view head) {
  while (!head.empty()) {
    const size_t end = std::min(head.find('\n'), head.size());
    if (const std::string_view line = trimmed(head.substr(0, end)); !line.empty()) return is_title(line);
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return false;
}

// Control characters that text does not have.
double binary_share(std::string_view head) {
  const auto odd = std::ranges::count_if(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 32 && space_of(c) != Space::kYes && byte != 0x1B && byte != 0x08;
  });
  return head.empty() ? 0 : static_cast<double>(odd) / static_cast<double>(head.size());
}

TextFormat format_of(const DocumentInput& input, const DocumentConfig& config, std::string_view head) {
  if (config.format != TextFormat::kAuto) return config.format;
  if (is_json_name(input.name)) return TextFormat::kJsonLines;
  if (input.name == kStandardInput && trimmed(head).starts_with('{')) return TextFormat::kJsonLines;
  return config.separator.empty() && starts_with_title(head) ? TextFormat::kWikiText : TextFormat::kText;
}

}  // namespace

TextFormat detect_format(const DocumentInput& input, const DocumentConfig& config) {
  std::string head(kHead, '\0');
  head.resize(input.open()->read(head));
  std::string_view text = head;
  if (text.starts_with(kBom)) text.remove_prefix(kBom.size());
  return format_of(input, config, text);
}

bool is_title(std::string_view line) {
  line = trimmed(line);
  return line.size() >= 5 && line.starts_with("= ") && line.ends_with(" =") && line[2] != '=' &&
         line[line.size() - 3] != '=';
}

Json Documents::Place::to_json() const {
  return {{"input", input},
          {"offset", offset},
          {"documents", documents},
          {"lines", lines},
          {"part", part},
          {"begun", begun},
          {"blank", blank},
          {"inside_line", inside_line},
          {"after_blank_line", after_blank_line}};
}

Documents::Place Documents::Place::from_json(const Json& json, const std::vector<DocumentInput>& inputs,
                                             const std::string& origin) {
  const auto number = [&](const char* name, uint64_t most) {
    const Json value = json.is_object() && json.contains(name) ? json[name] : Json();
    require(value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<uint64_t>() <= most,
            "{}: {} is {}, not a number of at most {}", origin, name, value.dump(), most);
    return value.get<uint64_t>();
  };
  const auto flag = [&](const char* name) {
    const Json value = json.is_object() && json.contains(name) ? json[name] : Json();
    require(value.is_boolean(), "{}: {} is {}, neither true nor false", origin, name, value.dump());
    return value.get<bool>();
  };
  Place place{.input = number("input", inputs.size()),
              .offset = number("offset", INT64_MAX),
              .documents = number("documents", INT64_MAX),
              .lines = number("lines", INT64_MAX),
              .part = 0,
              .begun = flag("begun"),
              .blank = flag("blank"),
              .inside_line = flag("inside_line"),
              .after_blank_line = flag("after_blank_line")};
  place.part = static_cast<int>(number("part", place.input < inputs.size() ? inputs[place.input].cuts.size() : 0));
  require(place.input < inputs.size() || place.offset == 0, "{}: offset {} behind the last input", origin,
          place.offset);
  return place;
}

Documents::Documents(std::vector<DocumentInput> inputs, DocumentConfig config, Cut cut)
    : inputs_(std::move(inputs)), config_(std::move(config)), cut_(std::move(cut)) {}

uint64_t Documents::raw_bytes() const { return finished_bytes_ + (file_ ? file_->raw_position() : 0); }

void Documents::go_to(const Place& place, const std::function<void()>& check) {
  place_ = {.input = place.input, .documents = place.documents};
  finished_bytes_ = 0;
  for (size_t i = 0; i < place.input; ++i) finished_bytes_ += inputs_[i].bytes;
  if (place.offset == 0) return;
  open_next();  // for the format
  file_ = input().open();
  file_->skip(place.offset, check);
  buffer_.clear();
  at_end_ = false;
  place_ = place;
}

// Opens the file at place_ and looks at its head.
bool Documents::open_next() {
  if (place_.input >= inputs_.size()) return false;
  file_ = input().open();
  buffer_.clear();
  at_end_ = false;
  fill(kHead);
  look_at_head();
  place_.blank = place_.after_blank_line = true;
  if (format_ != TextFormat::kJsonLines) {
    place_.begun = true;
    ++place_.documents;
  }
  return true;
}

void Documents::look_at_head() {
  if (buffer_.starts_with(kBom)) {
    buffer_.erase(0, kBom.size());
    place_.offset += kBom.size();
  }
  const std::string_view head = std::string_view(buffer_).substr(0, kHead);
  require(!head.starts_with("\xFF\xFE") && !head.starts_with("\xFE\xFF"),
          "{}: the text is UTF-16. Convert it to UTF-8 first.", input().name);
  require(config_.allow_binary || binary_share(head) <= 0.02,
          "{}: does not look like text. --allow-binary takes it as it is.", input().name);
  format_ = format_of(input(), config_, head);
}

// Until the buffer has `size` bytes or the file ends.
void Documents::fill(size_t size) {
  if (at_end_ || buffer_.size() >= size) return;
  const size_t had = buffer_.size();
  buffer_.resize(size);
  const size_t n = file_->read(std::span(buffer_).subspan(had));
  at_end_ = had + n < size;
  buffer_.resize(had + n);
}

bool Documents::next(Chunk& chunk) {
  chunk.text.clear();
  chunk.segments.clear();
  while (chunk.segments.empty()) {
    if (!file_ && !open_next()) return false;
    Scan found;
    const size_t size = find_chunk(found);
    emit(size, found, chunk);
    if (!at_end_) continue;
    finished_bytes_ += file_->raw_position();
    file_.reset();
    place_ = {.input = place_.input + 1, .documents = place_.documents};
  }
  chunk.before = std::exchange(emitted_, emitted_ + chunk.text.size());
  return true;
}

// How much of the buffer can go out, which grows until something can.
size_t Documents::find_chunk(Scan& found) {
  for (size_t wanted = kChunk;; wanted *= 2) {
    fill(wanted);
    found = scan();
    const size_t size = last_cut(found);
    if (size > 0 || at_end_) return size;
    require(wanted < kLargest, "{}: {} MiB without a place to cut. Is it text{}?", input().name, kLargest >> 20,
            format_ == TextFormat::kJsonLines ? ", one JSON object a line" : "");
  }
}

// Looks at every line whose kind is known: the whole ones, and a last one that is too long to begin a document.
Documents::Scan Documents::scan() const {
  const std::vector<uint64_t>& cuts = input().cuts;
  const bool json = format_ == TextFormat::kJsonLines;
  const bool separated = !json && !config_.separator.empty();
  const bool wiki = !separated && format_ == TextFormat::kWikiText;
  Scan found;
  if (!json && !separated && !wiki && static_cast<size_t>(place_.part) >= cuts.size()) {
    found.limit =
        buffer_.empty() ? 0 : buffer_.size() - 1;  // at least a byte stays: the last chunk is known to be last
    return found;
  }
  int part = place_.part;
  bool after_blank = place_.after_blank_line, blank_document = place_.blank;
  constexpr size_t kNone = std::string::npos;
  size_t title = kNone;  // where the line before begins, if a document begins with it once this one is blank
  uint64_t number = place_.lines;
  size_t gap = 0;  // behind the last line of .jsonl that is not blank
  for (size_t begin = 0, end = 0; begin < buffer_.size(); begin = end) {
    const size_t newline = buffer_.find('\n', begin);
    end = newline == std::string::npos ? buffer_.size() : newline + 1;
    const bool whole = newline != std::string::npos || at_end_, is_long = end - begin > kLongestMark;
    if (!whole && (json || !is_long)) break;
    const std::string_view line(buffer_.data() + begin, end - begin);
    const bool continued = begin == 0 && place_.inside_line;
    const bool blank = !continued && (json || !is_long) && trimmed(line).empty();
    const int part_before = part;
    while (!continued && static_cast<size_t>(part) < cuts.size() &&
           place_.offset + begin >= cuts[static_cast<size_t>(part)])
      ++part;
    ++number;
    if (json) {
      if (!blank) found.starts.push_back({gap, begin, part, number});
      if (!blank) gap = end;
      found.limit = end;
      continue;
    }
    if (title != kNone && blank) found.starts.push_back({title, title, part_before, 0});
    title = kNone;
    const bool is_separator = separated && !continued && without_line_end(line) == config_.separator;
    if (is_separator || part != part_before) {
      found.starts.push_back({begin, is_separator ? end : begin, part, 0});
      blank_document = true;
    } else if (wiki && after_blank && !blank_document && !is_long && is_title(line)) {
      title = begin;
    }
    after_blank = blank;
    blank_document = blank_document && blank;
    if (title == kNone) found.limit = whole ? begin : buffer_.size() - 1;
  }
  return found;
}

// The last place up to which the buffer can go out: a document's start or a place the tokenizer allows.
size_t Documents::last_cut(const Scan& found) const {
  if (at_end_) return buffer_.size();
  if (format_ == TextFormat::kJsonLines) return found.limit;
  size_t last = 0;
  for (const Start& start : found.starts) {
    if (start.at <= found.limit) last = start.text <= found.limit ? start.text : start.at;
  }
  return last + cut_(std::string_view(buffer_).substr(last, found.limit - last));
}

void Documents::emit(size_t size, const Scan& found, Chunk& chunk) {
  chunk.name = input().name;
  chunk.json = format_ == TextFormat::kJsonLines;
  chunk.offset = place_.offset;
  chunk.text.assign(buffer_, 0, size);
  size_t begin = chunk.json && found.starts.empty() ? size : 0;
  uint64_t line = 0;
  const auto add = [&](size_t end, bool ends) {
    if (begin == end) return;  // no text yet: place_.begun stays
    chunk.segments.push_back({.begin = begin,
                              .end = end,
                              .starts = std::exchange(place_.begun, false),
                              .ends = ends,
                              .split = input().cuts.empty() ? input().split : place_.part,
                              .number = place_.documents - 1,
                              .line = line});
  };
  bool ends = at_end_ || chunk.json;
  for (const Start& start : found.starts) {
    ends = ends || start.at == size;
    if (start.at >= size) break;
    add(start.at, true);
    begin = start.text;
    line = start.line;
    place_.part = start.part;
    place_.begun = true;
    place_.blank = true;
    ++place_.documents;
  }
  add(size, ends);
  advance(chunk.text, begin);
  buffer_.erase(0, size);
}

// What is known behind the text that went out, of which [last_start, end) is the open document's.
void Documents::advance(std::string_view text, size_t last_start) {
  if (text.empty()) return;
  const bool whole_line = text.back() == '\n';
  const size_t newline = text.substr(0, text.size() - 1).rfind('\n');
  const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
  const bool continued = line == 0 && place_.inside_line;
  place_.offset += text.size();
  if (format_ == TextFormat::kJsonLines) place_.lines += static_cast<uint64_t>(std::ranges::count(text, '\n'));
  place_.blank = place_.blank && trimmed(text.substr(last_start)).empty();
  place_.after_blank_line =
      whole_line && !continued && text.size() - line <= kLongestMark && trimmed(text.substr(line)).empty();
  place_.inside_line = !whole_line;
}

}  // namespace longshot
