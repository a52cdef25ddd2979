#include "generate/text_stream.h"

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kMostRecent = 64, kKept = 8;  // tokens

// Bytes at the end of `text` that a stop string may begin with.
size_t perhaps_a_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops) {
    for (size_t size = std::min(stop.size() - 1, text.size()); size > most; --size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) most = size;
    }
  }
  return most;
}

}  // namespace

size_t unfinished_utf8(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a character
    const size_t length = byte >= 0xF0 && byte < 0xF5   ? 4
                          : byte >= 0xE0 && byte < 0xF0 ? 3
                          : byte >= 0xC2 && byte < 0xE0 ? 2
                                                        : 1;
    return length > back ? back : 0;
  }
  return 0;
}

TokenText::TokenText(const Tokenizer& tokenizer, std::span<const int32_t> before) : tokenizer_(tokenizer) {
  const auto last = before.last(std::min(before.size(), kKept));
  recent_.assign(last.begin(), last.end());
  bytes_ = tokenizer_.decode(recent_).size();
}

std::string TokenText::push(int32_t id) {
  if (recent_.size() >= kMostRecent) {
    recent_.erase(recent_.begin(), recent_.end() - kKept);
    bytes_ = tokenizer_.decode(recent_).size();
  }
  recent_.push_back(id);
  const std::string text = tokenizer_.decode(recent_);
  std::string added = text.size() > bytes_ ? text.substr(bytes_) : "";
  bytes_ = text.size();
  return added;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before, std::vector<std::string> stops)
    : tokens_(tokenizer, before), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) require_usage(!stop.empty(), "a stop string must not be empty");
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return "";
  held_ += tokens_.push(id);
  return release(false);
}

std::string TextStream::finish() { return release(true); }

std::string TextStream::release(bool last) {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  stopped_ = stopped_ || end != std::string::npos;
  if (!stopped_) {
    end = held_.size();
    if (!last) end -= std::max(perhaps_a_stop(held_, stops_), unfinished_utf8(held_));
  }
  std::string out = held_.substr(0, end);
  held_.erase(0, stopped_ ? std::string::npos : end);
  return out;
}

}  // namespace longshot
