// Inputs cut into documents, and documents into chunks that can be encoded on their own. What comes out
// depends on the inputs alone, never on the number of threads, and reading can go on from any chunk's end.
//
// A document is: a line of .jsonl; in WikiText's layout what a `= Title =` line (one = on each side, blank
// lines around it) begins; what stands between two lines equal to the separator, if one is given; else a
// whole file. No document spans two files. A line of more than 64 KiB begins no document, except in .jsonl.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/files.h"
#include "base/json.h"
#include "data/text_input.h"

namespace longshot {

constexpr const char* kStandardInput = "standard input";

enum class TextFormat { kAuto, kText, kWikiText, kJsonLines };
constexpr Choice<TextFormat> kTextFormats[] = {{"auto", TextFormat::kAuto},
                                               {"text", TextFormat::kText},
                                               {"wikitext", TextFormat::kWikiText},
                                               {"jsonl", TextFormat::kJsonLines}};

struct DocumentConfig {
  TextFormat format = TextFormat::kAuto;
  std::string separator;      // a line of its own; "" has none
  bool allow_binary = false;  // take what does not look like text
};

struct DocumentInput {
  fs::path path;
  std::string name;              // for messages
  uint64_t bytes = 0;            // of the file, as TextInput::raw_position counts them
  std::optional<int> split = 0;  // every document of the file; none: chosen by number
  // Where the file itself is cut into splits 0, 1, 2: at the first line that starts at or behind these bytes
  // of its text.
  std::vector<uint64_t> cuts;
  std::function<std::unique_ptr<TextInput>()> opener;  // of text that is not a file's; else open_text(path)

  std::unique_ptr<TextInput> open() const { return opener ? opener() : open_text(path); }
};

// A document, or a part of one: [begin, end) of a chunk's text.
struct Segment {
  size_t begin = 0, end = 0;
  bool starts = false, ends = false;  // the document
  std::optional<int> split = 0;       // as the input has it
  uint64_t number = 0;                // of the document, from 0
  uint64_t line = 0;                  // of .jsonl: for messages, from 1
};

struct Chunk {
  std::string name;     // of the input
  bool json = false;    // a segment is a JSON value, not text
  uint64_t offset = 0;  // where it begins in the input's text
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

  // Where the next chunk starts, with all that must be known of the text before it. A reader of the same inputs
  // goes on from there with the same chunks.
  struct Place {
    size_t input = 0;     // index of the file
    uint64_t offset = 0;  // in its text
    uint64_t documents = 0, lines = 0;
    int part = 0;                   // split of the open document, where the file is cut
    bool begun = false;             // the open document, but none of its text came yet
    bool blank = false;             // the open document has only whitespace so far
    bool inside_line = false;       // else the place is a line's start
    bool after_blank_line = false;  // or at the file's start
    Json to_json() const;
    // Throws unless it can be a place of these inputs.
    static Place from_json(const Json& json, const std::vector<DocumentInput>& inputs, const std::string& origin);
  };
  const Place& place() const { return place_; }
  // Calls `check` now and then, which may throw.
  void go_to(const Place& place, const std::function<void()>& check);

  // Bytes of the files read so far, before decompression.
  uint64_t raw_bytes() const;

 private:
  struct Start {      // a document begins
    size_t at, text;  // from `at` on the one before has ended; between the two stands what is no text
    int part;
    uint64_t line;
  };
  struct Scan {
    std::vector<Start> starts;  // in the buffer, ascending
    size_t limit = 0;           // up to here, itself included, all are known
  };
  const DocumentInput& input() const { return inputs_[place_.input]; }
  bool open_next();
  void look_at_head();
  void fill(size_t size);
  size_t find_chunk(Scan& found);
  Scan scan() const;
  size_t last_cut(const Scan& found) const;
  void emit(size_t size, const Scan& found, Chunk& chunk);
  void advance(std::string_view text, size_t last_start);

  std::vector<DocumentInput> inputs_;
  DocumentConfig config_;
  Cut cut_;
  Place place_;
  uint64_t emitted_ = 0;         // bytes of text
  uint64_t finished_bytes_ = 0;  // raw size of the files before the open one

  std::unique_ptr<TextInput> file_;        // at place_; null between two
  TextFormat format_ = TextFormat::kText;  // of it
  std::string buffer_;                     // its text from place_ on
  bool at_end_ = false;                    // its last byte is in the buffer
};

// What an input is taken for: as configured or, for kAuto, by its name and first bytes.
TextFormat detect_format(const DocumentInput& input, const DocumentConfig& config);

// A line of WikiText that begins an article: `= Title =`.
bool is_title(std::string_view line);

}  // namespace longshot
