// Inputs cut into documents, and documents into chunks that can be encoded on their own. What comes out
// depends on the inputs alone, never on the number of threads, and reading can go on from any chunk's end.
//
// A document is: a line of .jsonl; in WikiText's layout what a `= Title =` line (one = on each side, blank
// lines around it) begins; what stands between two lines equal to the separator, if one is given; else a
// whole file. No document spans two files.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/records.h"
#include "data/text_input.h"

namespace longshot {

constexpr const char* kStandardInput = "standard input";

enum class TextFormat { kAuto, kText, kWikiText, kJsonLines };

struct DocumentConfig {
  TextFormat format = TextFormat::kAuto;
  std::string separator;      // a line of its own; "" has none
  bool allow_binary = false;  // take what does not look like text
};

struct DocumentInput {
  fs::path path;
  std::string name;  // for messages
  int split = 0;     // every document of the file; kBySeed: chosen by number
  // Where the file itself is cut into splits 0, 1, 2: at the first line that starts at or behind these bytes
  // of its text.
  std::vector<uint64_t> cuts;

  static constexpr int kBySeed = -1;
};

// Documents [begin, end) of a chunk's text, or a part of one.
struct Segment {
  size_t begin = 0, end = 0;
  bool starts = false, ends = false;  // the document
  int split = 0;
  uint64_t number = 0;  // of the document, from 0
  uint64_t line = 0;    // of .jsonl: for messages, from 1
};

struct Chunk {
  std::string name;     // of the input
  bool json = false;    // a segment is a JSON value, not text
  uint64_t before = 0;  // bytes of text in all chunks before it
  std::string text;
  std::vector<Segment> segments;
};

class Documents {
 public:
  // `cut` finds the last place where a text can be cut (Tokenizer::cut).
  using Cut = std::function<size_t(std::string_view)>;
  Documents(std::vector<DocumentInput> inputs, DocumentConfig config, Cut cut);

  // The next chunk; false when there is none.
  bool next(Chunk& chunk);

  // Where the next chunk starts. A reader of the same inputs goes on from there with the same chunks.
  struct Position {
    size_t input = 0;     // index of the file
    uint64_t offset = 0;  // in its text
    uint64_t documents = 0, lines = 0;
    int part = 0;  // split of the open document, where the file is cut
    bool inside_line = false, after_blank_line = false;
    Json to_json() const;
    static Position from_json(const Json& json);
  };
  const Position& position() const { return position_; }
  void go_to(const Position& position);

  // Bytes of the files read so far, before decompression.
  uint64_t raw_bytes() const;

 private:
  struct Mark {       // a document begins
    size_t at, skip;  // the separator's length, which is not text
    int part;
  };
  bool open_next();
  void look_at_head();
  void fill();
  void scan();
  void scan_line(size_t begin, size_t end);
  size_t find_cut() const;
  void emit(size_t size, Chunk& chunk);
  void emit_json(size_t size, Chunk& chunk);

  std::vector<DocumentInput> inputs_;
  DocumentConfig config_;
  Cut cut_;
  Position position_;
  uint64_t emitted_ = 0;

  std::unique_ptr<TextInput> file_;
  TextFormat format_ = TextFormat::kText;  // of the open file
  uint64_t finished_bytes_ = 0;            // raw size of the files before it
  bool at_end_ = false;                    // its last byte is in the buffer
  std::string buffer_;                     // text from position_ on
  size_t wanted_ = 0;                      // buffer size to fill up to
  size_t scanned_ = 0;                     // of the buffer, looked through for marks
  size_t known_ = 0;                       // up to here, itself included, all marks are known
  size_t line_ = 0;                        // where the line scanned last begins
  bool inside_line_ = false;               // the buffer starts inside a line whose start is gone
  bool after_blank_line_ = false;
  std::optional<size_t> title_;  // the line scanned last begins a document if the next one is blank
  bool blank_so_far_ = false;    // the open document has only whitespace yet
  int next_part_ = 0;
  std::vector<Mark> marks_;  // in the buffer, ascending
};

// What an input is taken for: as configured or, for kAuto, by its name and first bytes.
TextFormat detect_format(const DocumentInput& input, const DocumentConfig& config);

// The text of the string member `field` of the JSON object in `line`; `origin` is for messages.
std::string json_text(std::string_view line, const std::string& field, const std::string& origin);

// A line of WikiText that begins an article: `= Title =`.
bool is_title(std::string_view line);

}  // namespace longshot
