#include "data/documents.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr size_t kLargest = 128 << 20;  // of a text that nothing cuts, and of a line of .jsonl
constexpr size_t kHead = 1 << 14;       // looked at to tell the format
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

// REQUIRES: the text ends with a newline.
bool last_line_is_blank(std::string_view text) {
  text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  return newline != std::string_view::npos && trimmed(text.substr(newline)).empty();
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
  head.resize(open_text(input.path)->read(head));
  std::string_view text = head;
  if (text.starts_with(kBom)) text.remove_prefix(kBom.size());
  return format_of(input, config, text);
}

bool is_title(std::string_view line) {
  line = trimmed(line);
  return line.size() >= 5 && line.starts_with("= ") && line.ends_with(" =") && line[2] != '=' &&
         line[line.size() - 3] != '=';
}

Json Documents::Position::to_json() const {
  return {{"input", input},
          {"offset", offset},
          {"documents", documents},
          {"lines", lines},
          {"part", part},
          {"inside_line", inside_line},
          {"after_blank_line", after_blank_line}};
}

Documents::Position Documents::Position::from_json(const Json& json) {
  return {
      json.at("input").get<size_t>(),         json.at("offset").get<uint64_t>(), json.at("documents").get<uint64_t>(),
      json.at("lines").get<uint64_t>(),       json.at("part").get<int>(),        json.at("inside_line").get<bool>(),
      json.at("after_blank_line").get<bool>()};
}

Documents::Documents(std::vector<DocumentInput> inputs, DocumentConfig config, Cut cut)
    : inputs_(std::move(inputs)), config_(std::move(config)), cut_(std::move(cut)) {}

uint64_t Documents::raw_bytes() const { return finished_bytes_ + (file_ ? file_->raw_position() : 0); }

void Documents::go_to(const Position& position) {
  position_ = {.input = position.input, .documents = position.documents};
  for (size_t i = 0; i < position.input; ++i) {
    std::error_code unknown;
    const auto size = fs::file_size(inputs_[i].path, unknown);
    if (!unknown) finished_bytes_ += size;
  }
  if (position.offset == 0) return;
  require(open_next(), "the inputs are fewer than they were");
  file_ = open_text(inputs_[position.input].path);
  file_->skip(position.offset);
  buffer_.clear();
  marks_.clear();
  scanned_ = known_ = line_ = 0;
  title_.reset();
  at_end_ = blank_so_far_ = false;
  inside_line_ = position.inside_line;
  after_blank_line_ = position.after_blank_line;
  next_part_ = position.part + 1;
  position_ = position;
}

// Opens the file at position_ and looks at its head.
bool Documents::open_next() {
  if (position_.input >= inputs_.size()) return false;
  file_ = open_text(inputs_[position_.input].path);
  buffer_.clear();
  marks_.assign(1, Mark{0, 0, 0});
  next_part_ = 1;
  scanned_ = known_ = line_ = 0;
  title_.reset();
  at_end_ = inside_line_ = false;
  after_blank_line_ = true;
  blank_so_far_ = true;
  wanted_ = kHead;
  fill();
  look_at_head();
  wanted_ = kChunk;
  return true;
}

void Documents::look_at_head() {
  const DocumentInput& input = inputs_[position_.input];
  if (buffer_.starts_with(kBom)) {
    buffer_.erase(0, kBom.size());
    position_.offset += kBom.size();
  }
  const std::string_view head = std::string_view(buffer_).substr(0, kHead);
  require(!head.starts_with("\xFF\xFE") && !head.starts_with("\xFE\xFF"),
          "{}: the text is UTF-16. Convert it to UTF-8 first.", input.name);
  require(config_.allow_binary || binary_share(head) <= 0.02,
          "{}: does not look like text. --allow-binary takes it as it is.", input.name);
  format_ = format_of(input, config_, head);
}

void Documents::fill() {
  if (at_end_ || buffer_.size() >= wanted_) return;
  const size_t had = buffer_.size();
  buffer_.resize(wanted_);
  const size_t n = file_->read(std::span(buffer_).subspan(had));
  at_end_ = had + n < wanted_;
  buffer_.resize(had + n);
}

// Looks at every line that is whole, once.
void Documents::scan() {
  const bool by_lines = format_ == TextFormat::kWikiText || format_ == TextFormat::kJsonLines ||
                        !config_.separator.empty() ||
                        next_part_ <= static_cast<int>(inputs_[position_.input].cuts.size());
  if (!by_lines) {
    scanned_ = known_ = buffer_.size();
    return;
  }
  while (scanned_ < buffer_.size()) {
    size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos) {
      if (!at_end_) return;
      end = buffer_.size() - 1;
    }
    if (inside_line_) {
      inside_line_ = after_blank_line_ = false;
    } else {
      scan_line(scanned_, end + 1);
    }
    known_ = std::exchange(line_, scanned_);
    scanned_ = end + 1;
  }
}

void Documents::scan_line(size_t begin, size_t end) {
  if (format_ == TextFormat::kJsonLines) return;  // emit_json knows them
  const std::string_view line(buffer_.data() + begin, end - begin);
  const std::vector<uint64_t>& cuts = inputs_[position_.input].cuts;
  const int part = marks_.empty() ? position_.part : marks_.back().part;
  if (next_part_ <= static_cast<int>(cuts.size()) &&
      position_.offset + begin >= cuts[static_cast<size_t>(next_part_ - 1)]) {
    marks_.push_back({begin, 0, next_part_++});
  } else if (!config_.separator.empty()) {
    if (without_line_end(line) == config_.separator) marks_.push_back({begin, line.size(), part});
  } else if (format_ == TextFormat::kWikiText) {
    const bool blank = trimmed(line).empty();
    if (title_ && blank) marks_.push_back({*title_, 0, part});
    title_.reset();
    if (after_blank_line_ && !blank_so_far_ && is_title(line)) title_ = begin;
    after_blank_line_ = blank;
    blank_so_far_ = blank_so_far_ && blank;
  }
}

// How much of the buffer can go out: up to a document's end or a place the tokenizer allows. At least one
// byte stays, so that a document's last chunk is known to be the last.
size_t Documents::find_cut() const {
  if (at_end_) return buffer_.size();
  if (format_ == TextFormat::kJsonLines) return scanned_;
  const size_t limit = std::min(known_, buffer_.size() - 1);
  size_t last = 0;
  for (const Mark& mark : marks_) last = mark.at <= limit ? mark.at : last;
  return last + cut_(std::string_view(buffer_).substr(last, limit - last));
}

bool Documents::next(Chunk& chunk) {
  chunk.text.clear();
  chunk.segments.clear();
  while (true) {
    if (!file_ && !open_next()) return false;
    fill();
    scan();
    const size_t size = find_cut();
    if (size == 0 && !at_end_) {
      require(wanted_ < kLargest, "{}: {} MiB without a place to cut. Is it text{}?", inputs_[position_.input].name,
              kLargest >> 20, format_ == TextFormat::kJsonLines ? ", one JSON object a line" : "");
      wanted_ *= 2;
      continue;
    }
    if (size > 0) format_ == TextFormat::kJsonLines ? emit_json(size, chunk) : emit(size, chunk);
    wanted_ = kChunk;
    if (at_end_) {
      finished_bytes_ += file_->raw_position();
      file_.reset();
      position_ = {.input = position_.input + 1, .documents = position_.documents};
    }
    if (!chunk.segments.empty()) {
      chunk.before = std::exchange(emitted_, emitted_ + chunk.text.size());
      return true;
    }
  }
}

void Documents::emit(size_t size, Chunk& chunk) {
  const DocumentInput& input = inputs_[position_.input];
  chunk.name = input.name;
  chunk.json = false;
  chunk.text.assign(buffer_, 0, size);
  size_t begin = 0, mark = 0;
  while (begin < size) {
    const bool starts = mark < marks_.size() && marks_[mark].at == begin;
    if (starts) {
      begin = std::min(begin + marks_[mark].skip, size);
      position_.part = marks_[mark++].part;
      ++position_.documents;
    }
    const size_t next = mark < marks_.size() ? marks_[mark].at : buffer_.size() + 1;
    const size_t end = std::min(next, size);
    const bool ends = end == next || (at_end_ && end == buffer_.size());
    if (begin < end) {
      chunk.segments.push_back({.begin = begin,
                                .end = end,
                                .starts = starts,
                                .ends = ends,
                                .split = input.cuts.empty() ? input.split : position_.part,
                                .number = position_.documents - 1,
                                .line = 0});
    }
    begin = end;
  }
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<ptrdiff_t>(mark));
  for (Mark& m : marks_) m.at -= size;
  buffer_.erase(0, size);
  scanned_ -= std::min(scanned_, size);
  known_ -= std::min(known_, size);
  line_ -= std::min(line_, size);
  if (title_) title_ = *title_ - std::min(*title_, size);
  position_.offset += size;
  position_.inside_line = chunk.text.back() != '\n';
  position_.after_blank_line = !position_.inside_line && last_line_is_blank(chunk.text);
}

void Documents::emit_json(size_t size, Chunk& chunk) {
  const DocumentInput& input = inputs_[position_.input];
  chunk.name = input.name;
  chunk.json = true;
  chunk.text.assign(buffer_, 0, size);
  size_t begin = 0;
  while (begin < size) {
    const size_t end = std::min(chunk.text.find('\n', begin), size - 1) + 1;
    ++position_.lines;
    if (!trimmed(std::string_view(chunk.text).substr(begin, end - begin)).empty()) {
      chunk.segments.push_back({.begin = begin,
                                .end = end,
                                .starts = true,
                                .ends = true,
                                .split = input.split,
                                .number = position_.documents++,
                                .line = position_.lines});
    }
    begin = end;
  }
  buffer_.erase(0, size);
  scanned_ -= std::min(scanned_, size);
  position_.offset += size;
}

namespace {

// Keeps the value of one member of the outermost object.
class FieldReader : public nlohmann::json_sax<Json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}
  std::string text;
  bool object = false, found = false, is_string = false;
  std::vector<std::string> keys;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (wanted_) {
      text = std::move(value);
      is_string = true;
    }
    return other();
  }
  bool start_object(size_t) override {
    if (depth_ == 0) object = true;
    return open();
  }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ != 1 || !object) return true;
    wanted_ = !found && name == field_;
    found |= wanted_;
    if (!found && keys.size() < 8) keys.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = e.what();
    return false;
  }
  std::string error;

 private:
  static constexpr int kDeepest = 1000;
  bool other() {
    wanted_ = false;
    return true;
  }
  bool open() {
    if (++depth_ <= kDeepest) return other();
    error = "nested too deeply";
    return false;
  }
  bool close() {
    --depth_;
    return true;
  }
  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false;
};

}  // namespace

std::string json_text(std::string_view line, const std::string& field, const std::string& origin) {
  FieldReader reader(field);
  require(Json::sax_parse(line.begin(), line.end(), &reader), "{}: not valid JSON ({})", origin, reader.error);
  require(reader.object, "{}: not a JSON object", origin);
  require(reader.found, "{}: no member '{}'; the first ones are: {}. Choose with --json-field.", origin, field,
          fmt::join(reader.keys, ", "));
  require(reader.is_string, "{}: the member '{}' is not a string", origin, field);
  return std::move(reader.text);
}

}  // namespace longshot
