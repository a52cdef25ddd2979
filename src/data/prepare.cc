#include "data/prepare.h"

#include <fmt/ranges.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/records.h"
#include "base/version.h"
#include "data/chunk_pipeline.h"
#include "data/encoded.h"
#include "data/json_lines.h"
#include "data/prepare_output.h"
#include "data/prepare_sources.h"
#include "data/token_set_dir.h"
#include "data/tokenizer_training.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr uint64_t kShard = 256u << 20;  // input bytes between two checkpoints

Json to_json(const TokenCounts& counts) {
  return {{"tokens", counts.tokens}, {"documents", counts.documents}, {"bytes", counts.bytes}, {"words", counts.words}};
}

// One run of prepare().
class Job {
 public:
  Job(Context& context, const PrepareConfig& config, const PrepareHooks& hooks)
      : context_(context),
        config_(config),
        hooks_(hooks),
        alone_(alone()),
        world_(hooks.world ? *hooks.world : *alone_),
        place_(config.out),
        output_(open_output()),
        sources_(list_sources()) {
    require_usage(config.vocab_size >= 0, "--vocab-size {}: must be positive", config.vocab_size);
  }
  PrepareResult run();

 private:
  std::optional<PrepareOutput> open_output();
  PrepareSources& list_sources();
  void require_files(bool only_files) const;
  void agree() const;
  Json identity() const;
  void begin();
  void make_tokenizer();
  void train_tokenizer(TokenizerKind kind);
  void open_writers();
  void join();
  void encode();
  int rank_of_batch() const { return static_cast<int>(batch_ % world_.size()); }
  void write_batch(const ChunkBatch& batch, std::span<const Encoded> encoded);
  void end_batch(const ChunkBatch& batch);
  void encode_chunk(const Chunk& chunk, Encoder& encoder, Encoded& out) const;
  void write(const Encoded& encoded);
  void save_progress(const Documents::Place& place);
  PrepareResult finish();

  Documents documents(Documents::Cut cut) const {
    return Documents(sources_.inputs(), sources_.documents(), std::move(cut));
  }
  std::string_view text_of(const Chunk& chunk, const Segment& segment, std::string& scratch) const;
  uint64_t saved_number(const Json& json, const char* name) const;
  void go_on(const char* phase, uint64_t bytes) const {
    hooks_.progress({phase, bytes, total_bytes_});
    check();
  }
  void check() const {
    if (asked_to_stop()) throw Stopped();
  }
  bool asked_to_stop() const {
    const std::lock_guard lock(asking_);
    return hooks_.stop();
  }

  Context& context_;
  const PrepareConfig& config_;
  const PrepareHooks& hooks_;
  mutable std::mutex asking_;
  std::unique_ptr<Communicator> alone_;
  Communicator& world_;
  PreparePlace place_;
  std::optional<PrepareOutput> output_;  // of rank 0
  std::optional<PrepareSources> listed_;
  PrepareSources& sources_;
  std::vector<fs::path> spooled_;
  uint64_t total_bytes_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::unique_ptr<TokenWriter>> writers_;  // one a split; null where nothing is wanted
  uint64_t invalid_bytes_ = 0;
  std::string first_invalid_;
  Json job_;                   // job.json: identity, and how far the work is
  size_t chunks_at_once_ = 0;  // the same on all ranks
  int64_t batch_ = 0;          // number of the one under way
  uint64_t saved_at_ = 0;      // bytes read when job.json was last written
};

std::optional<PrepareOutput> Job::open_output() {
  require_files(config_.recipe.empty());
  std::optional<PrepareOutput> output;
  world_.on_root([&] { output.emplace(place_, config_.overwrite); });
  return output;
}

PrepareSources& Job::list_sources() {
  world_.on_each([this] { listed_.emplace(config_, std::vector<fs::path>{place_.out, place_.partial}, hooks_); });
  return *listed_;
}

void Job::require_files(bool only_files) const {
  require_usage(only_files || world_.is_alone(),
                "several processes cannot share a pipe, standard input or a recipe's archive: put the text into files");
}

// Ranks that see other files, or were told other things, would encode other text.
void Job::agree() const {
  if (world_.is_alone()) return;
  require_files(!sources_.has_pipes());
  Options options;
  PrepareConfig config = config_;
  config.fields(options);
  Facts facts;
  const Json now = identity();
  for (const Json& file : now["files"]) facts.emplace_back(file[0].get<std::string>(), file.dump());
  if (now["options"].contains("tokenizer-file"))
    facts.emplace_back("the tokenizer's file", now["options"]["tokenizer-file"]);
  require_same_work(world_, options, facts);
}

// What must be the same for work to be taken up where it was left.
Json Job::identity() const {
  Json files = Json::array();
  for (const DocumentInput& input : sources_.inputs()) {
    const auto time = fs::last_write_time(input.path).time_since_epoch().count();
    files.push_back({printable(input.name), input.split ? Json(*input.split) : Json(), input.bytes, time});
  }
  Json values;
  for (const auto& [name, value] : option_values(config_)) {
    if (name != "out" && name != "overwrite") values[name] = printable(value);
  }
  if (fs::is_regular_file(sources_.tokenizer())) values["tokenizer-file"] = checksum(MappedFile(sources_.tokenizer()));
  return {{"version", version()}, {"format", 2}, {"files", files}, {"options", values}};
}

// Takes up unfinished work, or starts anew.
void Job::begin() {
  for (const DocumentInput& input : sources_.inputs()) output_->require_outside(input.path);
  if (fs::exists(sources_.tokenizer())) output_->require_outside(sources_.tokenizer());
  const bool piped = sources_.has_pipes();
  const Json before = output_->unfinished();
  job_ = {{"identity", piped ? Json() : identity()}};
  for (const std::string& split : sources_.splits()) job_["splits"][split] = nullptr;  // counts, once there are any
  if (!piped && before.is_object() && before["identity"] == job_["identity"]) {
    job_ = before;
    hooks_.note(fmt::format("taking up the work in {}", output_->partial().string()));
  } else {
    if (before.is_object() && !before["identity"].is_null())
      hooks_.note(
          fmt::format("the work in {} was of other inputs or options: starting anew", output_->partial().string()));
    output_->start_anew(job_);
    spooled_ = sources_.spool_pipes(output_->partial());
  }
  total_bytes_ = sources_.total_bytes();
}

PrepareResult Job::run() {
  agree();
  world_.on_root([this] { begin(); });
  world_.on_each([this] { sources_.plan_cuts(); });
  world_.on_root([this] {
    make_tokenizer();
    open_writers();
  });
  join();
  encode();
  PrepareResult result{.finished = true, .splits = {}, .first_invalid = {}};
  world_.on_root([&] { result = finish(); });
  return result;
}

// What the other ranks must know of rank 0's work.
void Job::join() {
  const std::string place = world_.broadcast(job_.contains("place") ? job_["place"].dump() : "");
  chunks_at_once_ = std::stoull(world_.broadcast(std::to_string(batch_size(context_.threads()))));
  if (world_.is_root()) return;
  if (!place.empty()) job_["place"] = parse_json(place, "rank 0");
  tokenizer_ = load_tokenizer(place_.partial);
}

void Job::make_tokenizer() {
  if (job_.contains("tokenizer")) {
    tokenizer_ = load_tokenizer(output_->partial());
    return;
  }
  const std::string& wanted = sources_.tokenizer();
  const std::optional<TokenizerKind> kind = value_of(kTokenizerKinds, wanted);
  if (kind == TokenizerKind::kByte) {
    tokenizer_ = byte_tokenizer();
  } else if (kind) {
    train_tokenizer(*kind);
  } else {
    require_usage(fs::exists(wanted), "--tokenizer {}: neither a kind of tokenizer ({}) nor a file", wanted,
                  fmt::join(names_of(kTokenizerKinds), ", "));
    tokenizer_ = load_tokenizer(wanted);
  }
  tokenizer_->save(output_->partial());
  job_["tokenizer"] = tokenizer_->file_name();
  output_->save(job_);
}

void Job::train_tokenizer(TokenizerKind kind) {
  const auto trainer = make_trainer({kind, config_.vocab_size, config_.sentencepiece_model}, context_.threads());
  Documents reader = documents([&](std::string_view text) { return trainer->cut(text); });
  for_each_batch(
      context_, reader, batch_size(context_.threads()),
      [&](size_t, const Chunk& chunk, int thread) {
        if (chunk.before >= trainer->enough()) return;
        std::string scratch;
        for (const Segment& segment : chunk.segments) {
          if (sources_.split_of(segment) == 0) trainer->add(thread, text_of(chunk, segment, scratch));
        }
      },
      [&](const ChunkBatch& batch) {
        go_on("reading for the vocabulary", batch.raw_bytes);
        return batch.chunks[batch.count - 1].before < trainer->enough();
      });
  tokenizer_ = trainer->finish([&](uint64_t done, uint64_t total) {
    hooks_.progress({"learning the vocabulary", done, total, false});
    check();
  });
}

// What is encoded: a part of a document, of which bytes that are no text are replaced where that is asked for.
std::string_view Job::text_of(const Chunk& chunk, const Segment& segment, std::string& scratch) const {
  std::string_view text = std::string_view(chunk.text).substr(segment.begin, segment.end - segment.begin);
  if (config_.invalid_utf8 == InvalidText::kReplace && find_invalid_utf8(text).bytes > 0)
    text = scratch = replace_invalid_utf8(text);
  if (!chunk.json) return text;
  scratch = json_text(text, config_.json_field, fmt::format("{}, line {}", chunk.name, segment.line));
  return scratch;
}

uint64_t Job::saved_number(const Json& json, const char* name) const {
  const Json value = json.is_object() && json.contains(name) ? json[name] : Json();
  require(value.is_number_unsigned(), "{}: '{}' is not a number. Remove the directory and start again.",
          PrepareOutput::job_file(place_.partial).string(), name);
  return value.get<uint64_t>();
}

void Job::open_writers() {
  const TokenWriter::Meta meta{tokenizer_->hash(), tokenizer_->vocab_size(), tokenizer_->start_id()};
  writers_.resize(sources_.splits().size());
  const bool resumed = job_.contains("place");
  const Json splits = resumed && job_.contains("splits") ? job_["splits"] : Json();
  if (resumed) {
    invalid_bytes_ = saved_number(job_, "invalid_bytes");
    if (job_["first_invalid"].is_string()) first_invalid_ = job_["first_invalid"];
  }
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (!sources_.wanted(s)) continue;
    const std::string& name = sources_.splits()[s];
    const fs::path path = TokenSetDir(output_->partial()).split(name);
    if (!resumed) {
      writers_[s] = std::make_unique<TokenWriter>(path, meta);
      continue;
    }
    const Json done = splits.is_object() && splits.contains(name) ? splits[name] : Json();
    const TokenCounts counts{saved_number(done, "tokens"), saved_number(done, "documents"), saved_number(done, "bytes"),
                             saved_number(done, "words")};
    writers_[s] =
        std::make_unique<TokenWriter>(path, meta, TokenWriter::Checkpoint{counts, saved_number(done, "ids_hash")});
  }
}

void Job::save_progress(const Documents::Place& place) {
  Json splits;
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (!writers_[s]) continue;
    const TokenWriter::Checkpoint& written = writers_[s]->checkpoint();
    Json& split = splits[sources_.splits()[s]] = to_json(written.counts);
    split["ids_hash"] = written.ids_hash;
  }
  job_["splits"] = splits;
  job_["invalid_bytes"] = invalid_bytes_;
  job_["first_invalid"] = first_invalid_;
  job_["place"] = place.to_json();
  output_->save(job_);
}

void Job::encode() {
  Documents reader = documents([&](std::string_view text) { return tokenizer_->cut(text); });
  if (job_.contains("place")) {
    const std::string origin = PrepareOutput::job_file(place_.partial).string() + ", place";
    world_.on_each(
        [&] { reader.go_to(Documents::Place::from_json(job_["place"], sources_.inputs(), origin), [&] { check(); }); });
  }
  std::vector<std::unique_ptr<Encoder>> encoders;
  encoders.reserve(static_cast<size_t>(context_.threads()));
  for (int t = 0; t < context_.threads(); ++t) {
    encoders.push_back(tokenizer_->make_encoder());
    if (world_.is_alone()) encoders.back()->set_watch({.should_stop = [this] { return asked_to_stop(); }});
  }
  std::vector<Encoded> encoded(chunks_at_once_);
  saved_at_ = reader.raw_bytes();
  std::optional<Documents::Place> reached;
  try {
    for_each_batch(
        context_, reader, chunks_at_once_,
        [&](size_t i, const Chunk& chunk, int thread) {
          if (rank_of_batch() == world_.rank()) encode_chunk(chunk, *encoders[static_cast<size_t>(thread)], encoded[i]);
        },
        [&](const ChunkBatch& batch) {
          write_batch(batch, std::span(encoded).first(batch.count));
          reached = batch.end;
          end_batch(batch);
          return true;
        });
  } catch (const Stopped&) {
    if (world_.is_root() && reached) save_progress(*reached);
    throw;
  }
  if (world_.is_root()) save_progress(reader.place());
}

// Batches go to the ranks in turn; rank 0 writes all, in their order.
void Job::write_batch(const ChunkBatch& batch, std::span<const Encoded> encoded) {
  const int rank = rank_of_batch();
  if (!world_.is_root()) {
    if (rank == world_.rank()) world_.send_text(0, packed(encoded));
    return;
  }
  const std::vector<Encoded> theirs = rank == 0 ? std::vector<Encoded>() : unpacked(world_.receive_text(rank));
  for (const Encoded& chunk : rank == 0 ? encoded : std::span<const Encoded>(theirs)) write(chunk);
  hooks_.progress({"encoding", batch.raw_bytes, total_bytes_});
}

// Once in a turn rank 0 asks whether to stop. A process alone asks while it encodes, too.
void Job::end_batch(const ChunkBatch& batch) {
  const bool last_of_turn = ++batch_ % world_.size() == 0;
  if (!world_.is_root()) {
    if (last_of_turn && !world_.broadcast(std::string()).empty()) throw Stopped();
    return;
  }
  const bool stop = last_of_turn && asked_to_stop();
  if (batch.raw_bytes - saved_at_ >= kShard) {
    save_progress(batch.end);
    saved_at_ = batch.raw_bytes;
  }
  if (last_of_turn && !world_.is_alone()) world_.broadcast(std::string(stop ? "stop" : ""));
  if (stop) throw Stopped();
}

void Job::encode_chunk(const Chunk& chunk, Encoder& encoder, Encoded& out) const {
  out.clear(sources_.splits().size());
  std::string scratch;
  for (const Segment& segment : chunk.segments) {
    const std::string_view raw = std::string_view(chunk.text).substr(segment.begin, segment.end - segment.begin);
    if (const InvalidUtf8 invalid = find_invalid_utf8(raw); invalid.bytes > 0) {
      const std::string where =
          fmt::format("{}, byte {}", printable(chunk.name), chunk.offset + segment.begin + invalid.first);
      require(config_.invalid_utf8 != InvalidText::kRefuse &&
                  (!chunk.json || config_.invalid_utf8 == InvalidText::kReplace),
              "{}: not UTF-8. Is it in another encoding? --invalid-utf8 replace puts U+FFFD there{}.", where,
              chunk.json ? "" : ", keep takes it as it is");
      if (out.invalid_bytes == 0) out.first_invalid = where;
      out.invalid_bytes += invalid.bytes;
    }
    Encoded::Part& part = out.parts[sources_.split_of(segment)];
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
  if (encoded.invalid_bytes > 0 && invalid_bytes_ == 0) first_invalid_ = encoded.first_invalid;
  invalid_bytes_ += encoded.invalid_bytes;
  for (size_t s = 0; s < writers_.size(); ++s) {
    const Encoded::Part& part = encoded.parts[s];
    if (!writers_[s] || (part.ids.empty() && part.starts.empty())) continue;
    const std::span<const int32_t> ids(part.ids);
    size_t begin = 0;
    for (const uint64_t start : part.starts) {
      writers_[s]->append(ids.subspan(begin, start - begin));
      writers_[s]->begin_document();
      begin = start;
    }
    writers_[s]->append(ids.subspan(begin));
    writers_[s]->add_text(part.bytes, part.words);
  }
}

// Every step of it can be broken off: what is there is then made again from the last checkpoint.
PrepareResult Job::finish() {
  PrepareResult result{.finished = true,
                       .splits = {},
                       .vocab_size = tokenizer_->vocab_size(),
                       .invalid_bytes = invalid_bytes_,
                       .first_invalid = first_invalid_};
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (writers_[s])
      require(writers_[s]->counts().tokens > 0, "the {} split has no text: {}", sources_.splits()[s],
              sources_.advice());
  }
  const TokenSetDir set(output_->partial());
  Json splits;
  for (size_t s = 0; s < writers_.size(); ++s) {
    if (!writers_[s]) continue;
    go_on("writing", total_bytes_);
    const std::string& name = sources_.splits()[s];
    result.splits.push_back({name, writers_[s]->finish()});
    splits[name] = to_json(result.splits.back().counts);
    splits[name]["data_hash"] = fmt::format("{:016x}", TokenFile(set.split(name)).data_hash());
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
  for (const DocumentInput& input : sources_.inputs()) files.push_back(printable(input.name));
  meta["files"] = files;
  if (invalid_bytes_ > 0) meta["invalid_utf8"] = {{"bytes", invalid_bytes_}, {"first", first_invalid_}};
  write_json(set.meta(), meta);
  for (const fs::path& file : spooled_) fs::remove(file);
  go_on("writing", total_bytes_);
  output_->publish_set();
  return result;
}

}  // namespace

void PrepareConfig::fields(Options& o) {
  o.group("input");
  o.add_files("train", train, "training text: files, directories, globs or - ; .jsonl, .gz, .zst, .xz are known");
  o.add_files("valid", valid, "validation text");
  o.add_files("test", test, "test text");
  o.add("recipe", recipe, "a corpus to download: wikitext-103, wikitext-2");
  o.add("split", split, "shares of train,valid,test into which INPUT.. is cut at document boundaries");
  o.add("split-by", split_by, kSplitBy,
        "draw each document's split by its number, or cut by position: a file of plain text into its first, middle and "
        "last part, fewer than 200 documents of another kind in their order; auto draws from 200 documents on");
  o.add("seed", seed, "for the drawing of --split");
  o.add("format", format, kTextFormats,
        "a document is: a file of plain text; an article of WikiText's layout, begun by a `= Title =` line; "
        "a line of .jsonl");
  o.add("json-field", json_field, "member of a .jsonl line that holds the text");
  o.add("document-separator", document_separator, "a line equal to this ends a document (plain text)");
  o.add("invalid-utf8", invalid_utf8, kInvalidText,
        "bytes that are not UTF-8: keep them, put U+FFFD in the place of each, or refuse the text; they are counted");
  o.add("allow-binary", allow_binary, "take files that do not look like text");
  o.group("tokenizer");
  o.add("tokenizer", tokenizer,
        fmt::format("{}, or a file: tokenizer.json, vocab.json (with merges.txt), vocab.txt, dict.txt, *.model",
                    fmt::join(names_of(kTokenizerKinds), ", ")));
  o.add("vocab-size", vocab_size,
        "entries of a vocabulary built here; 0: 8192 for bpe and sentencepiece, all words for word");
  o.add("sentencepiece-model", sentencepiece_model, kSentencePieceModels, "kind of model that SentencePiece learns");
  o.group("output");
  o.add("out", out, "directory of the token set");
  o.add("overwrite", overwrite, "replace the token set that is there");
}

PrepareResult prepare(Context& context, const PrepareConfig& config, const PrepareHooks& hooks) {
  try {
    return Job(context, config, hooks).run();
  } catch (const Stopped&) {
    return {};
  }
}

}  // namespace longshot
