#include "data/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/unicode.h"

namespace longshot {
namespace {

constexpr size_t kLongest = 16;  // bytes put in at one place
constexpr size_t kMostSteps = 16;
constexpr double kNfcGrowth = 3;
constexpr size_t kNfcPart = 1 << 20;

// Characters of ASCII and those from U+4000 to U+9FFF compose with nothing before them.
bool begins_part(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x80 || (byte >= 0xE4 && byte <= 0xE9);
}

std::string nfc_in_parts(std::string_view text, const Watch& watch) {
  std::string out;
  while (!text.empty()) {
    size_t end = std::min(kNfcPart, text.size());
    while (end < text.size() && !begins_part(text[end])) ++end;
    out += nfc(text.substr(0, end));
    text.remove_prefix(end);
    if (watch.should_stop()) throw Stopped();
  }
  return out;
}

}  // namespace

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = from.empty() ? std::string_view::npos : text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

Normalizer Normalizer::from_json(const JsonTree& json, const std::string& origin) {
  Normalizer n;
  if (json.is_null()) return n;
  require(json.is_object() && json.contains("type"), "{}: the normalizer has no type", origin);
  if (json["type"] == "Sequence") {
    require(json.contains("normalizers") && json["normalizers"].is_array(), "{}: the normalizer's Sequence is empty",
            origin);
    for (const JsonTree& part : json["normalizers"]) n.add(part, origin);
  } else {
    n.add(json, origin);
  }
  return n;
}

void Normalizer::add(const JsonTree& json, const std::string& origin) {
  const std::string type = json.value("type", "");
  require(steps_.size() < kMostSteps, "{}: the normalizer has more than {} steps", origin, kMostSteps);
  const auto short_text = [&](const char* member) {
    const std::string text = json.value(member, "");
    require(text.size() <= kLongest, "{}: the normalizer {} puts in {} bytes; at most {} are taken", origin, type,
            text.size(), kLongest);
    return text;
  };
  if (type == "NFC") {
    if (!steps_.empty()) growth_ *= kNfcGrowth;
    steps_.push_back({Step::Kind::kNfc});
  } else if (type == "Prepend") {
    steps_.push_back({Step::Kind::kPrepend, "", short_text("prepend")});
  } else if (type == "Replace") {
    const bool text = json.contains("pattern") && json["pattern"].is_object() && json["pattern"].contains("String");
    require(text, "{}: the normalizer Replace is supported with the pattern of a String only", origin);
    const auto from = json["pattern"].at("String").get<std::string>();
    require(!from.empty(), "{}: the normalizer Replace has an empty pattern", origin);
    const std::string to = short_text("content");
    growth_ *= std::max(1.0, static_cast<double>(to.size()) / static_cast<double>(from.size()));
    steps_.push_back({Step::Kind::kReplace, from, to});
  } else {
    fail("{}: the normalizer '{}' is not supported for BPE (NFC, Prepend, Replace, Sequence)", origin, type);
  }
}

std::string Normalizer::apply(std::string_view text, const Watch& watch) const {
  std::string out(text);
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kNfc) {
      out = nfc_in_parts(out, watch);
    } else if (step.kind == Step::Kind::kReplace) {
      out = replaced(out, step.from, step.to);
    } else if (!out.empty()) {
      out.insert(0, step.to);
    }
  }
  return out;
}

bool Normalizer::prepends() const {
  return std::ranges::any_of(steps_, [](const Step& step) { return step.kind == Step::Kind::kPrepend; });
}

std::string Normalizer::space() const {
  for (const Step& step : steps_) {
    if (step.kind == Step::Kind::kReplace && step.from == " ") return step.to;
  }
  return "";
}

}  // namespace longshot
