#include <sentencepiece_processor.h>

#include <algorithm>

#include "base/error.h"
#include "data/sentencepiece_check.h"
#include "data/token_set_dir.h"
#include "data/tokenizers.h"

namespace longshot {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut at spaces: the library's time and memory stay small

struct SpecialIds {
  int32_t newline, end;
};

class SentencePieceEncoder : public Encoder {
 public:
  SentencePieceEncoder(const SentencePieceProcessor& model, SpecialIds special) : model_(model), special_(special) {}
  void append(std::string_view text, std::vector<int32_t>& ids) override {
    while (!text.empty()) {
      const size_t newline = text.find('\n');
      append_line(text.substr(0, newline), ids);
      if (newline == std::string_view::npos) return;
      ids.push_back(special_.newline);
      text.remove_prefix(newline + 1);
    }
  }

 private:
  void append_line(std::string_view line, std::vector<int32_t>& ids) {
    while (line.size() > kLongestLine) {
      // The space goes: the model puts one in front of every text.
      size_t cut = line.rfind(' ', kLongestLine), skip = 1;
      if (cut == 0 || cut == std::string_view::npos) {
        cut = kLongestLine, skip = 0;
        while (cut > 1 && (static_cast<unsigned char>(line[cut]) & 0xC0) == 0x80) --cut;
      }
      encode(line.substr(0, cut), ids);
      line.remove_prefix(cut + skip);
    }
    encode(line, ids);
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) {
    const auto status = model_.Encode({text.data(), text.size()}, &pieces_);
    require(status.ok(), "SentencePiece cannot encode a line: {}", status.ToString());
    ids.insert(ids.end(), pieces_.begin(), pieces_.end());
    passed(text.size());
  }

  const SentencePieceProcessor& model_;
  SpecialIds special_;
  std::vector<int> pieces_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, const std::string& origin)
      : Tokenizer(kSentencePieceFile, std::move(model)) {
    const auto status = model_.LoadFromSerializedProto(checked_sentencepiece_model(file(), origin));
    require(status.ok() && model_.GetPieceSize() > 0, "{}: not a SentencePiece model ({})", origin, status.ToString());
    const auto known = [&](const char* piece) {
      const int id = model_.PieceToId(piece);
      return model_.IsUnknown(id) ? -1 : id;
    };
    const int end = model_.eos_id();
    for (const int id : {known("\n"), known("<0x0A>"), end}) {
      if (special_.newline < 0) special_.newline = id;
    }
    require(special_.newline >= 0, "{}: the model has no piece that can stand for a line's end (\"\\n\", <0x0A>, </s>)",
            origin);
    special_.end = end >= 0 ? end : special_.newline;
  }
  std::string_view name() const override { return "sentencepiece"; }
  int vocab_size() const override { return model_.GetPieceSize(); }
  int32_t start_id() const override { return special_.end; }
  std::unique_ptr<Encoder> make_encoder() const override {
    return std::make_unique<SentencePieceEncoder>(model_, special_);
  }
  void end_document(char last, std::vector<int32_t>& ids) const override {
    if (special_.end != special_.newline || last != '\n') ids.push_back(special_.end);
  }
  size_t cut(std::string_view text) const override {
    const size_t at = text.rfind('\n');
    return at == std::string_view::npos ? 0 : at + 1;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    std::string text;
    while (!ids.empty()) {
      const auto newline = std::ranges::find(ids, special_.newline);
      const std::vector<int> line(ids.begin(), newline);
      std::string part;
      const auto status = model_.Decode(line, &part);
      require(status.ok(), "SentencePiece cannot decode: {}", status.ToString());
      text += part;
      if (newline == ids.end()) break;
      text += '\n';
      ids = {newline + 1, ids.end()};
    }
    return text;
  }
  std::string token(int32_t id) const override {
    check({&id, 1});
    return model_.IdToPiece(id);
  }

 private:
  SentencePieceProcessor model_;
  SpecialIds special_{-1, -1};
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string model, const std::string& origin) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), origin);
}

}  // namespace longshot
