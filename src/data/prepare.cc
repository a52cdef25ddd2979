#include "data/prepare.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/records.h"
#include "base/rng.h"
#include "base/version.h"
#include "data/chunk_pipeline.h"
#include "data/data_bin.h"
#include "data/recipe.h"
#include "data/token_set.h"
#include "data/tokenizer_training.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr uint64_t kShard = 256u << 20;  // input bytes between two checkpoints
constexpr size_t kFewFiles = 20;         // fewer files of plain text are cut themselves
constexpr const char* kJobFile = "job.json";

TextFormat format_named(const std::string& name) {
  if (name == "text") return TextFormat::kText;
  if (name == "wikitext") return TextFormat::kWikiText;
  if (name == "jsonl") return TextFormat::kJsonLines;
  return TextFormat::kAuto;
}

// What a chunk becomes, for each split.
struct Encoded {
  struct Part {
    std::vector<int32_t> ids;
    std::vector<size_t> starts;  // of documents, in ids
    uint64_t bytes = 0, words = 0;
  };
  std::array<Part, 3> parts;

  void clear() {
    for (Part& part : parts) {
      part.ids.clear();
      part.starts.clear();
      part.bytes = part.words = 0;
    }
  }
};

// One run of prepare(): everything is in OUT.partial until it is whole.
class Job {
 public:
  Job(Context& context, const PrepareConfig& config, const PrepareHooks& hooks);
  PrepareResult run();

 private:
  void list_inputs();
  void spool_pipes();
  void cut_by_position();
  Json identity() const;
  bool make_tokenizer();
  bool train_tokenizer();
  void open_writers();
  bool encode();
  void encode_chunk(const Chunk& chunk, Encoder& encoder, Encoded& out) const;
  void write(const Encoded& encoded);
  void save_progress(const Documents::Position& position);
  PrepareResult publish_set();

  bool cuts_inputs() const { return !config_.inputs.empty(); }
  Documents documents(Documents::Cut cut) const { return Documents(inputs_, document_config_, std::move(cut)); }
  int split_of(const Segment& segment) const;
  std::string_view text_of(const Chunk& chunk, const Segment& segment, std::string& scratch) const;
  bool go_on(const char* phase, uint64_t bytes) const {
    hooks_.progress({phase, bytes, total_bytes_});
    return !hooks_.stop();
  }

  Context& context_;
  const PrepareConfig& config_;
  const PrepareHooks& hooks_;
  DocumentConfig document_config_;
  fs::path out_, partial_;
  std::vector<DocumentInput> inputs_;
  std::vector<fs::path> spooled_;
  uint64_t total_bytes_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::array<std::unique_ptr<TokenWriter>, 3> writers_;
  Json job_;  // kJobFile: identity, and how far the work is
};

Job::Job(Context& context, const PrepareConfig& config, const PrepareHooks& hooks)
    : context_(context),
      config_(config),
      hooks_(hooks),
      document_config_{format_named(config.format), config.document_separator, config.allow_binary},
      out_(config.out) {
  require_usage(!config.out.empty(), "--out DIR is needed: where the token set goes");
  const bool listed = !config.train.empty() || !config.valid.empty() || !config.test.empty();
  require_usage(listed != cuts_inputs(), "give either --train, --valid and --test, or INPUT.. to be cut by --split");
  require_usage(!cuts_inputs() ||
                    (config.split.size() == 3 && std::ranges::all_of(config.split, [](double s) { return s >= 0; }) &&
                     std::abs(std::accumulate(config.split.begin(), config.split.end(), 0.0) - 1) < 1e-6),
                "--split: three shares that add up to 1 are needed (train,valid,test)");
  require_usage(config.vocab_size >= 0, "--vocab-size {}: must be positive", config.vocab_size);
  if (out_.filename().empty()) out_ = out_.parent_path();  // DIR/
  partial_ = out_;
  partial_ += ".partial";
  std::error_code error;
  require_usage(config.overwrite || !fs::exists(out_) || fs::is_empty(out_, error),
                "--out {}: exists and is not empty. --overwrite replaces it.", out_.string());
}

void Job::list_inputs() {
  const auto add = [&](const std::vector<std::string>& names, int split) {
    for (const fs::path& path : expand_inputs(names)) {
      inputs_.push_back(
          {.path = path, .name = path == "-" ? kStandardInput : path.string(), .split = split, .cuts = {}});
    }
  };
  add(config_.train, 0);
  add(config_.valid, 1);
  add(config_.test, 2);
  add(config_.inputs, DocumentInput::kBySeed);
}

// What is not a file is read more than once too (format, vocabulary): it is kept in one.
void Job::spool_pipes() {
  for (DocumentInput& input : inputs_) {
    if (fs::is_regular_file(input.path)) continue;
    const fs::path pipe = std::exchange(input.path, partial_ / fmt::format("pipe-{}", spooled_.size()));
    spooled_.push_back(input.path);
    const int fd = pipe == "-" ? ::dup(STDIN_FILENO) : ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
    require(fd >= 0, "{}: cannot open: {}", input.name, std::strerror(errno));
    const std::unique_ptr<const int, void (*)(const int*)> closer(&fd, [](const int* open) { ::close(*open); });
    OutputFile spool(input.path);
    std::vector<char> block(1 << 20);
    while (const ssize_t n = ::read(fd, block.data(), block.size())) {
      if (n < 0 && errno == EINTR) continue;
      require(n > 0, "{}: cannot read: {}", input.name, std::strerror(errno));
      spool.write(block.data(), static_cast<size_t>(n));
      hooks_.progress({"reading", spool.position(), 0});
    }
    spool.close();
  }
}

// Few files of plain text have too few documents to draw from: each is cut into its first, middle and last
// part.
void Job::cut_by_position() {
  if (config_.split_by == "document") return;
  if (config_.split_by == "auto") {
    const bool marked = std::ranges::any_of(inputs_, [&](const DocumentInput& input) {
      return detect_format(input, document_config_) != TextFormat::kText;
    });
    if (marked || !config_.document_separator.empty() || inputs_.size() >= kFewFiles) return;
  }
  for (DocumentInput& input : inputs_) {
    const auto size = static_cast<double>(text_size(input.path));
    input.cuts = {static_cast<uint64_t>(size * config_.split[0]),
                  static_cast<uint64_t>(size * (config_.split[0] + config_.split[1]))};
  }
}

// What must be the same for work to be taken up where it was left.
Json Job::identity() const {
  Json files = Json::array();
  for (const DocumentInput& input : inputs_) {
    const auto time = fs::last_write_time(input.path).time_since_epoch().count();
    files.push_back({input.name, input.split, fs::file_size(input.path), time});
  }
  Options options;
  PrepareConfig config = config_;
  config.fields(options);
  Json values;
  for (const Option& o : options.all()) {
    if (o.name != "out" && o.name != "overwrite") values[o.name] = o.get();
  }
  if (fs::is_regular_file(config_.tokenizer))
    values["tokenizer-file"] = checksum(MappedFile(config_.tokenizer).bytes());
  return {{"version", version()}, {"files", files}, {"options", values}};
}

PrepareResult Job::run() {
  list_inputs();
  const bool piped =
      std::ranges::any_of(inputs_, [](const DocumentInput& input) { return !fs::is_regular_file(input.path); });
  const Json before = fs::exists(partial_ / kJobFile) ? read_json(partial_ / kJobFile) : Json();
  job_ = {{"identity", piped ? Json() : identity()}};
  if (!piped && before.contains("identity") && before["identity"] == job_["identity"]) {
    job_ = before;
    hooks_.note(fmt::format("taking up the work in {}", partial_.string()));
  } else {
    fs::remove_all(partial_);
    make_directories(partial_);
    spool_pipes();
    write_json(partial_ / kJobFile, job_);
  }
  for (const DocumentInput& input : inputs_)
    total_bytes_ += fs::is_regular_file(input.path) ? fs::file_size(input.path) : 0;
  if (cuts_inputs()) cut_by_position();
  if (!make_tokenizer() || !encode()) return {};
  return publish_set();
}

bool Job::make_tokenizer() {
  if (job_.contains("tokenizer")) {
    tokenizer_ = load_tokenizer(partial_);
    return true;
  }
  if (config_.tokenizer == "byte") {
    tokenizer_ = byte_tokenizer();
  } else if (is_trained_kind(config_.tokenizer)) {
    if (!train_tokenizer()) return false;
  } else {
    require_usage(fs::exists(config_.tokenizer),
                  "--tokenizer {}: neither a kind of tokenizer (byte, word, bpe, sentencepiece) nor a file",
                  config_.tokenizer);
    tokenizer_ = load_tokenizer(config_.tokenizer);
  }
  tokenizer_->save(partial_);
  job_["tokenizer"] = tokenizer_->file_name();
  write_json(partial_ / kJobFile, job_);
  return true;
}

bool Job::train_tokenizer() {
  const auto trainer =
      make_trainer({config_.tokenizer, config_.vocab_size, config_.sentencepiece_model}, context_.threads());
  Documents reader = documents([&](std::string_view text) { return trainer->cut(text); });
  bool stopped = false;
  for_each_batch(
      context_, reader,
      [&](size_t, const Chunk& chunk, int thread) {
        if (chunk.before >= trainer->enough()) return;
        std::string scratch;
        for (const Segment& segment : chunk.segments) {
          if (split_of(segment) == 0) trainer->add(thread, text_of(chunk, segment, scratch));
        }
      },
      [&](const ChunkBatch& batch) {
        stopped = !go_on("building the vocabulary", batch.raw_bytes);
        return !stopped && batch.chunks[batch.count - 1].before < trainer->enough();
      });
  if (!stopped) tokenizer_ = trainer->finish();
  return !stopped;
}

int Job::split_of(const Segment& segment) const {
  if (segment.split != DocumentInput::kBySeed) return segment.split;
  const double u = uniform01(random_bits(config_.seed, Stream::kData, segment.number));
  return u < config_.split[0] ? 0 : u < config_.split[0] + config_.split[1] ? 1 : 2;
}

std::string_view Job::text_of(const Chunk& chunk, const Segment& segment, std::string& scratch) const {
  const std::string_view text = std::string_view(chunk.text).substr(segment.begin, segment.end - segment.begin);
  if (!chunk.json) return text;
  scratch = json_text(text, config_.json_field, fmt::format("{}, line {}", chunk.name, segment.line));
  return scratch;
}

void Job::open_writers() {
  const TokenWriter::Meta meta{tokenizer_->hash(), tokenizer_->vocab_size(), tokenizer_->start_id()};
  for (size_t s = 0; s < writers_.size(); ++s) {
    const bool wanted =
        cuts_inputs() ? config_.split[s] > 0 : std::ranges::any_of(inputs_, [&](const DocumentInput& input) {
          return input.split == static_cast<int>(s);
        });
    if (!wanted) continue;
    const fs::path path = partial_ / (std::string(kSplitNames[s]) + ".tokens");
    if (job_.contains("position")) {
      const Json& done = job_["splits"][kSplitNames[s]];
      writers_[s] = std::make_unique<TokenWriter>(
          path, meta,
          TokenWriter::Checkpoint{{done.at("tokens"), done.at("documents"), done.at("bytes"), done.at("words")},
                                  done.at("ids_hash")});
    } else {
      writers_[s] = std::make_unique<TokenWriter>(path, meta);
    }
  }
}

Json to_json(const TokenCounts& counts) {
  return {{"tokens", counts.tokens}, {"documents", counts.documents}, {"bytes", counts.bytes}, {"words", counts.words}};
}

void Job::save_progress(const Documents::Position& position) {
  Json splits;
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (!writers_[s]) continue;
    const TokenWriter::Checkpoint& written = writers_[s]->checkpoint();
    splits[kSplitNames[s]] = to_json(written.counts);
    splits[kSplitNames[s]]["ids_hash"] = written.ids_hash;
  }
  job_["splits"] = splits;
  job_["position"] = position.to_json();
  write_json(partial_ / kJobFile, job_);
}

bool Job::encode() {
  open_writers();
  Documents reader = documents([&](std::string_view text) { return tokenizer_->cut(text); });
  if (job_.contains("position")) reader.go_to(Documents::Position::from_json(job_["position"]));

  std::vector<std::unique_ptr<Encoder>> encoders;
  for (int t = 0; t < context_.threads(); ++t) encoders.push_back(tokenizer_->make_encoder());
  std::vector<Encoded> encoded;
  uint64_t saved = reader.raw_bytes();
  bool stopped = false;
  encoded.resize(batch_size(context_));
  for_each_batch(
      context_, reader,
      [&](size_t i, const Chunk& chunk, int thread) {
        encode_chunk(chunk, *encoders[static_cast<size_t>(thread)], encoded[i]);
      },
      [&](const ChunkBatch& batch) {
        for (size_t i = 0; i < batch.count; ++i) write(encoded[i]);
        stopped = !go_on("encoding", batch.raw_bytes);
        if (stopped || batch.raw_bytes - saved >= kShard) {
          save_progress(batch.end);
          saved = batch.raw_bytes;
        }
        return !stopped;
      });
  return !stopped;
}

void Job::encode_chunk(const Chunk& chunk, Encoder& encoder, Encoded& out) const {
  out.clear();
  std::string scratch;
  for (const Segment& segment : chunk.segments) {
    Encoded::Part& part = out.parts[static_cast<size_t>(split_of(segment))];
    const std::string_view text = text_of(chunk, segment, scratch);
    if (text.empty()) continue;
    if (segment.starts) part.starts.push_back(part.ids.size());
    encoder.append(text, part.ids);
    if (segment.ends) tokenizer_->end_document(text.back(), part.ids);
    part.bytes += text.size();
    part.words += count_words(text);
  }
}

void Job::write(const Encoded& encoded) {
  for (size_t s = 0; s < writers_.size(); ++s) {
    const Encoded::Part& part = encoded.parts[s];
    if (!writers_[s] || (part.ids.empty() && part.starts.empty())) continue;
    const std::span<const int32_t> ids(part.ids);
    size_t begin = 0;
    for (const size_t start : part.starts) {
      writers_[s]->append(ids.subspan(begin, start - begin));
      writers_[s]->begin_document();
      begin = start;
    }
    writers_[s]->append(ids.subspan(begin));
    writers_[s]->add_text(part.bytes, part.words);
  }
}

PrepareResult Job::publish_set() {
  PrepareResult result{.finished = true, .splits = {}, .vocab_size = tokenizer_->vocab_size()};
  Json splits;
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (!writers_[s]) continue;
    require(writers_[s]->counts().tokens > 0, "the {} split has no text{}", kSplitNames[s],
            cuts_inputs() ? ": there are too few documents for --split. Cut by --split-by position, or give "
                            "--train, --valid and --test."
                          : ": its files are empty");
    result.splits[s] = writers_[s]->finish();
    splits[kSplitNames[s]] = to_json(result.splits[s]);
  }
  Json meta{{"format", 1},
            {"longshot", version()},
            {"tokenizer",
             {{"name", tokenizer_->name()},
              {"file", tokenizer_->file_name()},
              {"hash", fmt::format("{:016x}", tokenizer_->hash())},
              {"vocab_size", tokenizer_->vocab_size()}}},
            {"splits", splits}};
  Json files = Json::array();
  for (const DocumentInput& input : inputs_) files.push_back(input.name);
  meta["files"] = files;
  write_json(partial_ / "meta.json", meta);
  for (const fs::path& file : spooled_) fs::remove(file);
  fs::remove(partial_ / kJobFile);
  fs::remove_all(out_);
  publish(partial_, out_);
  return result;
}

// The splits of a data-bin as text again: its words apart by a space. Encoding gives back the ids; documents,
// words and bytes are found on the way.
void list_data_bin(const fs::path& dir, const fs::path& text, PrepareConfig& config) {
  make_directories(text);
  const TokenSet set(dir);
  std::vector<int32_t> ids;
  const auto write = [&](const char* name, std::vector<std::string>& files) {
    if (!set.has(name)) return;
    const fs::path path = text / (std::string(name) + ".txt");
    const TokenFile& tokens = set.split(name);
    OutputFile out(path);
    bool line_start = true;
    for (int64_t at = 0; at < tokens.size(); at += static_cast<int64_t>(ids.size())) {
      ids.resize(static_cast<size_t>(std::min<int64_t>(tokens.size() - at, 1 << 16)));
      tokens.read(at, ids);
      if (!line_start && ids[0] != tokens.start_id()) out.write(" ");
      const std::string part = set.tokenizer().decode(ids);
      out.write(part);
      line_start = part.ends_with('\n');
    }
    out.close();
    files = {path.string()};
  };
  write("train", config.train);
  write("valid", config.valid);
  write("test", config.test);
  config.tokenizer = (dir / "dict.txt").string();
}

}  // namespace

void PrepareConfig::fields(Options& o) {
  o.group("input");
  o.add_files("train", train, "training text: files, directories, globs or - ; .jsonl, .gz, .zst, .xz are known");
  o.add_files("valid", valid, "validation text");
  o.add_files("test", test, "test text");
  o.add("recipe", recipe, "a corpus to download: wikitext-103, wikitext-2");
  o.add("split", split, "shares of train,valid,test into which INPUT.. is cut at document boundaries");
  o.add("split-by", split_by, {"auto", "document", "position"},
        "draw each document's split by its number, or cut each file into first, middle and last part; auto "
        "cuts fewer than 20 files "
        "of plain text");
  o.add("seed", seed, "for the drawing of --split");
  o.add("format", format, {"auto", "text", "wikitext", "jsonl"},
        "a document is: a file of plain text; an article of WikiText's layout, begun by a `= Title =` line; "
        "a line of .jsonl");
  o.add("json-field", json_field, "member of a .jsonl line that holds the text");
  o.add("document-separator", document_separator, "a line equal to this ends a document (plain text)");
  o.add("allow-binary", allow_binary, "take files that do not look like text");
  o.group("tokenizer");
  o.add("tokenizer", tokenizer,
        "byte, word, bpe, sentencepiece, or a file: tokenizer.json, vocab.json (with merges.txt), vocab.txt, "
        "dict.txt, *.model");
  o.add("vocab-size", vocab_size, "entries of a vocabulary built here; 0: all words, or 8192 pieces");
  o.add("sentencepiece-model", sentencepiece_model, {"unigram", "bpe"}, "kind of model that SentencePiece learns");
  o.group("output");
  o.add("out", out, "directory of the token set");
  o.add("overwrite", overwrite, "replace what is there");
}

PrepareResult prepare(Context& context, const PrepareConfig& config, const PrepareHooks& hooks) {
  const bool data_bin = config.inputs.size() == 1 && is_data_bin(config.inputs[0]);
  if (config.recipe.empty() && !data_bin) return Job(context, config, hooks).run();

  PrepareConfig files = config;
  require_usage(!config.out.empty(), "--out DIR is needed: where the token set goes");
  require_usage(
      config.train.empty() && config.valid.empty() && config.test.empty() && (data_bin || config.inputs.empty()),
      "a {} brings its own splits: no --train, --valid, --test or INPUT", data_bin ? "data-bin" : "recipe");
  files.inputs.clear();
  fs::path text = config.out;
  if (text.filename().empty()) text = text.parent_path();
  text += data_bin ? ".text" : ".download";
  if (data_bin) {
    list_data_bin(config.inputs[0], text, files);
  } else {
    const auto paths = fetch_recipe(find_recipe(config.recipe), text, [&](uint64_t bytes, uint64_t total) {
      hooks.progress({"downloading", bytes, total});
      return !hooks.stop();
    });
    files.train = {paths[0].string()}, files.valid = {paths[1].string()}, files.test = {paths[2].string()};
  }
  const PrepareResult result = Job(context, files, hooks).run();
  if (!result.finished) return result;
  // The text can be made again; a downloaded archive stays.
  for (const auto& names : {files.train, files.valid, files.test}) {
    for (const std::string& name : names) fs::remove(name);
  }
  if (fs::is_empty(text)) fs::remove(text);
  return result;
}

}  // namespace longshot
