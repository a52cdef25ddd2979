#include "run/checkpoint.h"

#include <fcntl.h>
#include <linux/fs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/json_fields.h"
#include "run/metrics.h"

namespace longshot {
namespace {

constexpr int64_t kFormat = 2;

struct FileEntry {
  int64_t bytes = 0;
  std::string crc32;
};
template <class V>
void fields(V& v, FileEntry& f) {
  v("bytes", f.bytes, kAnyCount);
  v("crc32", f.crc32);
}

struct TokenizerEntry {
  std::string file, hash;
};
template <class V>
void fields(V& v, TokenizerEntry& t) {
  v("file", t.file);
  v("hash", t.hash);
}

// Objects whose keys are not known beforehand.
template <class T>
Json object_of(const std::map<std::string, T>& members) {
  Json json = Json::object();
  for (const auto& [key, value] : members) json[key] = value;
  return json;
}

template <class T>
std::map<std::string, T> members_of(const Json& json, const std::string& where) {
  require(json.is_object(), "{}: an object was expected", where);
  std::map<std::string, T> members;
  for (const auto& [key, value] : json.items()) {
    if constexpr (std::is_same_v<T, std::string>) {
      require(value.is_string(), "{}: {} must be text", where, key);
    } else {
      require(value.is_number(), "{}: {} must be a number", where, key);
    }
    members[key] = value.template get<T>();
  }
  return members;
}

}  // namespace

template <class V>
void fields(V& v, Origin& o) {
  v("run", o.run);
  v("step", o.step, kAnyCount);
  v("weights", o.weights);
}

namespace {

// state.json as it is written; the objects in it that others own are read further below.
struct TrainingEntry {
  Json options, optimizer;
  std::string data_hash;
  double seconds = 0;
  int64_t peak_memory_bytes = 0;
  std::optional<std::string> arithmetic{};
};
template <class V>
void fields(V& v, TrainingEntry& t) {
  v("options", t.options);
  v("optimizer", t.optimizer);
  v("data_hash", t.data_hash);
  v("seconds", t.seconds, kNotNegative);
  v("peak_memory_bytes", t.peak_memory_bytes, kAnyCount);
  v("arithmetic", t.arithmetic);
}

struct StateFile {
  int64_t format = kFormat;
  int64_t step = 0;
  std::string position;
  Json model;
  std::optional<TokenizerEntry> tokenizer;
  std::optional<TrainingEntry> training;
  std::optional<Origin> from;
  Json files = Json::object();
};
template <class V>
void fields(V& v, StateFile& s) {
  v("format", s.format, CountRange{1, kFormat});
  v("step", s.step, kAnyCount);
  v("position", s.position);
  v("model", s.model);
  v.object("tokenizer", s.tokenizer);
  v.object("training", s.training);
  v.object("from", s.from);
  v("files", s.files);
}

StateFile read_state(const fs::path& path) {
  Json json = read_json(path);
  require(json.is_object(), "{}: an object was expected", path.string());
  const auto format = json.find("format");
  if (format != json.end() && *format == 1) {  // its state of training is not read: weights only
    json.erase("optimizer");
    json.erase("train");
  }
  return read_fields<StateFile>(json, path.string());
}

void require_finite(const std::string& name, std::span<const float> numbers) {
  for (const float x : numbers) {
    require(std::isfinite(x), "tensor '{}' holds {}; nothing is saved with it. Earlier checkpoints are intact.", name,
            x);
  }
}

std::vector<StreamedTensor> named(const Parameters& parameters, const NamedBlock& block) {
  std::vector<StreamedTensor> tensors;
  for (const Tensor& t : parameters.tensors()) {
    const std::span<const float> data = part(block.numbers, t.offset, t.size);
    require_finite(block.prefix + t.name, data);
    tensors.push_back(
        {block.prefix + t.name, DType::kF32, t.shape, [data](const ByteSink& sink) { sink(std::as_bytes(data)); }});
  }
  return tensors;
}

std::vector<StreamedTensor> in_parts(const Parameters& parameters, const BlockInParts& block) {
  std::vector<StreamedTensor> tensors;
  for (const Tensor& t : parameters.tensors()) {
    const std::string name = block.prefix + t.name;
    tensors.push_back({name, DType::kF32, t.shape, [name, &t, &block](const ByteSink& sink) {
                         const std::span<const float> numbers = block.tensor(t);
                         require_finite(name, numbers);
                         sink(std::as_bytes(numbers));
                       }});
  }
  return tensors;
}

const NamedTensor& stored_tensor(const Safetensors& file, const Tensor& t, const std::string& prefix) {
  const NamedTensor& stored = file.at(prefix + t.name);
  require(stored.shape == t.shape, "{}: tensor '{}' has shape {}, the model wants {}. Another model's checkpoint?",
          file.path().string(), stored.name, shape_text(stored.shape), shape_text(t.shape));
  return stored;
}

void fill_tensor(const Safetensors& file, const Tensor& t, const NamedBlock& block) {
  const NamedTensor& stored = stored_tensor(file, t, block.prefix);
  file.read(stored.name, block.numbers.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.size)));
}

// Matrices of 16 bits stay in the file; those at an odd address, which other programs may write, do not.
void map_narrow_matrices(const std::shared_ptr<const Safetensors>& file, Parameters& parameters) {
  for (size_t id = 0; id < parameters.tensors().size(); ++id) {
    const Tensor& t = parameters.tensors()[id];
    const NamedTensor& stored = stored_tensor(*file, t, "");
    const bool half = stored.dtype == DType::kF16;
    const bool even = reinterpret_cast<uintptr_t>(stored.bytes.data()) % sizeof(uint16_t) == 0;
    if (!t.matrix || !even || (!half && stored.dtype != DType::kBF16)) continue;
    parameters.map(id, half ? WeightType::kMappedF16 : WeightType::kMappedBf16, stored.bytes, file);
  }
}

Json file_entry(uint64_t bytes, const std::string& crc32) {
  return write_fields(FileEntry{static_cast<int64_t>(bytes), crc32});
}

Json written(const fs::path& path, std::span<const StreamedTensor> tensors, const Watch& watch = {}) {
  Checksum sum;
  const uint64_t bytes = write_safetensors(path, tensors, {}, watch, &sum);
  return file_entry(bytes, sum.text());
}

void save_tokenizer(const fs::path& dir, const Tokenizer& tokenizer, StateFile& state) {
  tokenizer.save(dir);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(tokenizer.file()));
  state.files[tokenizer.file_name()] = file_entry(bytes.size(), checksum(bytes));
  state.tokenizer = {tokenizer.file_name(), hex(tokenizer.hash())};
}

void check_file(const fs::path& path, const FileEntry& entry, const Watch& watch) {
  const MappedFile file(path);
  require(static_cast<int64_t>(file.size()) == entry.bytes,
          "{}: {} bytes, but {} were written. Was the copy interrupted?", path.string(), file.size(), entry.bytes);
  const std::string found = checksum(file, watch);
  require(found == entry.crc32, "{}: checksum {} is not the {} it was written with. The file is damaged.",
          path.string(), found, entry.crc32);
}

using FileEntries = std::map<std::string, FileEntry>;

// Every file a checkpoint of this state consists of must be listed.
FileEntries listed_files(const fs::path& dir, const StateFile& state) {
  const std::string path = (dir / kStateFile).string();
  require(state.files.is_object(), "{}: 'files' must be an object", path);
  FileEntries files;
  for (const auto& [name, json] : state.files.items()) {
    require(!name.empty() && !name.starts_with('.') && name.find('/') == std::string::npos,
            "{}: '{}' is not the plain name of a file", path, name);
    files[name] = read_fields<FileEntry>(json, fmt::format("{}, files, {}", path, name));
  }
  const auto listed = [&](const std::string& name) {
    require(files.contains(name), "{}: 'files' lacks {}, so it cannot be checked", path, name);
  };
  listed(kModelFile);
  if (state.training) listed(kOptimizerFile);
  if (state.tokenizer) listed(state.tokenizer->file);
  return files;
}

// Each must be as it was written.
void check_files(const fs::path& dir, const FileEntries& files, const Watch& watch) {
  const auto count = static_cast<double>(files.size());
  double done = 0;
  for (const auto& [name, entry] : files) {
    check_file(dir / name, entry, watch.part(done / count, (done + 1) / count));
    ++done;
  }
}

CheckpointInfo info_of(const fs::path& dir, StateFile state, const FileEntries& files) {
  const std::string path = (dir / kStateFile).string();
  CheckpointInfo info;
  info.format = state.format;
  info.step = state.step;
  info.model = ModelConfig::from_json(state.model, path);
  info.weights = files.at(kModelFile).crc32;
  if (state.tokenizer) {
    info.tokenizer_file = state.tokenizer->file;
    const std::string& text = state.tokenizer->hash;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), info.tokenizer_hash, 16);
    require(error == std::errc() && end == text.data() + text.size(), "{}: tokenizer hash '{}' is not a hex number",
            path, text);
  }
  if (state.training) {
    const TrainingEntry& t = *state.training;
    info.training = {members_of<std::string>(t.options, fmt::format("{}, training, options", path)),
                     members_of<double>(t.optimizer, fmt::format("{}, training, optimizer", path)),
                     t.data_hash,
                     t.seconds,
                     t.peak_memory_bytes,
                     t.arithmetic};
  }
  info.from = std::move(state.from);
  return info;
}

// A finished directory takes its place; one that stands there already gives way only when the new one is in place.
void publish_checkpoint(const fs::path& aside, const fs::path& dir) {
  std::error_code ignored;
  if (!fs::exists(dir)) return publish(aside, dir);
  if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, dir.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(aside, ignored);
    return;
  }
  fs::path old = dir;  // the file system cannot exchange; a kill between the two leaves what sweeping puts back
  old += kReplaced;
  fs::remove_all(old, ignored);
  publish(dir, old);
  publish(aside, dir);
  fs::remove_all(old, ignored);
}

StateFile state_of(const ModelConfig& config, int64_t step) {
  return {.step = step,
          .position = config.position,
          .model = config.to_json(),
          .tokenizer = {},
          .training = {},
          .from = {}};
}

// Makes the directory aside, lets `write` put its files there, adds tokenizer and state, and publishes it.
template <class Write>
void write_aside(const fs::path& dir, StateFile& state, const Tokenizer* tokenizer, Write write) {
  fs::path aside = dir;
  aside += kUnfinished;
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  make_directories(aside);
  try {
    write(aside);
    if (tokenizer) save_tokenizer(aside, *tokenizer, state);
    write_json(aside / kStateFile, write_fields(state));
    publish_checkpoint(aside, dir);
  } catch (...) {
    fs::remove_all(aside, ignored);
    throw;
  }
}

}  // namespace

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

void save_checkpoint(const fs::path& dir, const CheckpointContent& content) {
  Parameters& parameters = content.model.parameters();
  const std::vector<StreamedTensor> weights = named(parameters, {"", parameters.values()});
  std::vector<StreamedTensor> further;
  const auto add = [&](std::vector<StreamedTensor> tensors) {
    for (StreamedTensor& t : tensors) further.push_back(std::move(t));
  };
  for (const NamedBlock& b : content.blocks) add(named(parameters, b));
  for (const BlockInParts& b : content.blocks_in_parts) add(in_parts(parameters, b));
  StateFile state = state_of(content.model.config(), content.step);
  state.from = content.from;
  if (content.training) {
    const TrainingState& t = *content.training;
    state.training = {object_of(t.options), object_of(t.optimizer), t.data_hash, t.seconds, t.peak_memory_bytes,
                      t.arithmetic};
  }
  write_aside(dir, state, content.tokenizer, [&](const fs::path& aside) {
    state.files[kModelFile] = written(aside / kModelFile, weights);
    if (!further.empty()) state.files[kOptimizerFile] = written(aside / kOptimizerFile, further);
  });
}

void save_checkpoint(const fs::path& dir, const ImportedContent& content) {
  StateFile state = state_of(content.config, content.step);
  write_aside(dir, state, content.tokenizer, [&](const fs::path& aside) {
    state.files[kModelFile] = written(aside / kModelFile, content.weights, content.watch);
  });
}

CheckpointInfo read_checkpoint(const fs::path& dir, const Watch& watch) {
  StateFile state = read_state(dir / kStateFile);
  const FileEntries files = listed_files(dir, state);
  check_files(dir, files, watch);
  return info_of(dir, std::move(state), files);
}

CheckedBeside::CheckedBeside(const fs::path& dir) {
  StateFile state = read_state(dir / kStateFile);
  FileEntries files = listed_files(dir, state);
  info_ = info_of(dir, std::move(state), files);
  const FileEntry weights = files.extract(kModelFile).mapped();
  files.erase(kOptimizerFile);
  check_files(dir, files, {});
  check_ = std::async(std::launch::async, [this, path = dir / kModelFile, weights] {
    check_file(path, weights, {.should_stop = [this] { return stop_.load(); }});
  });
}

const TrainingState& training_of(const CheckpointInfo& info, const fs::path& dir) {
  if (info.training) return *info.training;
  fail("{}: {}, so training cannot go on from it. A new run can begin with its weights: longshot train --from {} ..",
       dir.string(),
       info.format == 1 ? "state.json is of format 1, of an earlier version, whose state of training is not read"
                        : "holds weights only",
       dir.string());
}

ModelVocabulary vocabulary_of(const CheckpointInfo& info, const fs::path& dir, const std::string& name) {
  return {.name = name,
          .size = static_cast<int>(info.model.vocab),
          .tokenizer_hash = info.tokenizer_hash,
          .tokenizer_file = info.tokenizer_file.empty() ? fs::path() : dir / info.tokenizer_file};
}

void load_weights(const fs::path& dir, Transformer& model, const Watch& watch, std::optional<WeightStorage> storage) {
  const auto opened = std::make_shared<const Safetensors>(dir / kModelFile);
  const Safetensors& file = *opened;
  Parameters& parameters = model.parameters();
  require(file.tensors().size() == parameters.tensors().size(),
          "{}: {} tensors, the model has {}. Another model's checkpoint?", file.path().string(), file.tensors().size(),
          parameters.tensors().size());
  const NamedBlock block{"", parameters.values()};
  if (storage && storage->map_narrow) map_narrow_matrices(opened, parameters);
  if (storage) parameters.begin_storing(storage->type);
  for (size_t id = 0; id < parameters.tensors().size(); ++id) {
    const Tensor& t = parameters.tensors()[id];
    watch.at(static_cast<double>(t.offset) / static_cast<double>(block.numbers.size()));
    if (parameters.weight(id).is_stored()) continue;
    fill_tensor(file, t, block);
    if (storage) parameters.store(id);
  }
}

void load_blocks(const fs::path& dir, const Transformer& model, const std::vector<NamedBlock>& blocks) {
  const Safetensors file(dir / kOptimizerFile);
  for (const NamedBlock& b : blocks) {
    for (const Tensor& t : model.parameters().tensors()) fill_tensor(file, t, b);
  }
}

void load_block(const fs::path& dir, const Transformer& model, const std::string& prefix,
                const std::function<void(const Tensor& tensor, std::span<const float> numbers)>& f) {
  const Safetensors file(dir / kOptimizerFile);
  std::vector<float> numbers;
  for (const Tensor& t : model.parameters().tensors()) {
    numbers.resize(static_cast<size_t>(t.size));
    const NamedTensor& stored = stored_tensor(file, t, prefix);
    file.read(stored.name, numbers);
    f(t, numbers);
  }
}

std::vector<int64_t> checkpoint_steps(const RunDir& run) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.checkpoints(), error)) {
    if (const auto step = RunDir::step_of(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void remove_checkpoint(const fs::path& dir) {
  fs::path going = dir;
  going += kUnfinished;
  std::error_code error;
  fs::rename(dir, going, error);
  if (!error) fs::remove_all(going, error);
}

void sweep_checkpoints(const RunDir& run) {
  std::error_code error;
  std::vector<fs::path> unfinished, replaced;
  for (const auto& entry : fs::directory_iterator(run.checkpoints(), error)) {
    const std::string name = entry.path().filename().string();
    if (RunDir::step_of(name, kUnfinished)) unfinished.push_back(entry.path());
    if (RunDir::step_of(name, kReplaced)) replaced.push_back(entry.path());
  }
  for (const fs::path& path : replaced) {
    const fs::path place = fs::path(path).replace_extension();
    if (fs::exists(place)) {
      fs::remove_all(path, error);
    } else {
      publish(path, place);
    }
  }
  for (const fs::path& path : unfinished) fs::remove_all(path, error);
}

fs::path find_checkpoint(const fs::path& path) {
  if (fs::exists(path / kStateFile)) return path;
  const RunDir run(path);
  const std::vector<int64_t> steps = checkpoint_steps(run);
  require(!steps.empty(), "{}: neither a run nor a checkpoint (no {} and no {} in it)", path.string(), kStateFile,
          run.checkpoints().string());
  if (const auto best = read_best(run)) {
    fs::path dir = run.checkpoint(best->step);
    if (fs::exists(dir / kStateFile)) return dir;
  }
  return run.checkpoint(steps.back());
}

}  // namespace longshot
