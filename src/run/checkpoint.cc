#include "run/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "formats/safetensors.h"

namespace longshot {
namespace {

constexpr int kFormat = 1;

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::vector<NamedTensor> named(const Parameters& parameters, std::span<const float> block, const std::string& prefix) {
  std::vector<NamedTensor> tensors;
  for (const Tensor& t : parameters.tensors()) {
    const auto data = block.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.size));
    tensors.push_back({prefix + t.name, DType::kF32, t.shape, std::as_bytes(data)});
  }
  return tensors;
}

void fill_block(const Safetensors& file, const Parameters& parameters, std::span<float> block,
                const std::string& prefix) {
  for (const Tensor& t : parameters.tensors()) {
    const NamedTensor& stored = file.at(prefix + t.name);
    require(stored.shape == t.shape, "{}: tensor '{}' has shape {}, the model wants {}. Another model's checkpoint?",
            file.path().string(), stored.name, shape_text(stored.shape), shape_text(t.shape));
    file.read(stored.name, block.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.size)));
  }
}

template <class T>
T field(const Json& json, const char* name, const fs::path& path) {
  try {
    return json.at(name).get<T>();
  } catch (const Json::exception&) {
    fail("{}: '{}' is missing or of the wrong kind", path.string(), name);
  }
}

Json file_record(const fs::path& path) {
  const MappedFile file(path);
  return {{"bytes", file.size()}, {"crc32", checksum(file.bytes())}};
}

void check_file(const fs::path& path, const Json& record) {
  const MappedFile file(path);
  const auto bytes = field<uint64_t>(record, "bytes", path);
  require(file.size() == bytes, "{}: {} bytes, but {} were written. Was the copy interrupted?", path.string(),
          file.size(), bytes);
  const auto sum = field<std::string>(record, "crc32", path);
  const std::string found = checksum(file.bytes());
  require(found == sum, "{}: checksum {} is not the {} it was written with. The file is damaged.", path.string(), found,
          sum);
}

}  // namespace

void save_checkpoint(const fs::path& dir, const CheckpointContent& content) {
  fs::path aside = dir;
  aside += ".tmp";
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  make_directories(aside);
  try {
    Parameters& parameters = content.model.parameters();
    write_safetensors(aside / kModelFile, named(parameters, parameters.values(), ""));
    Json files;
    files[kModelFile] = file_record(aside / kModelFile);
    Json state{{"format", kFormat}, {"step", content.step}, {"position", content.model.config().position}};
    state["model"] = content.model.config().to_json();
    if (!content.blocks.empty()) {
      std::vector<NamedTensor> tensors;
      for (const Block& b : content.blocks) {
        for (NamedTensor& t : named(parameters, b.numbers, b.prefix)) tensors.push_back(std::move(t));
      }
      write_safetensors(aside / kOptimizerFile, tensors);
      files[kOptimizerFile] = file_record(aside / kOptimizerFile);
    }
    if (content.training) {
      state["optimizer"] = content.training->optimizer;
      state["train"] = content.training->options;
    }
    if (content.tokenizer) {
      content.tokenizer->save(aside);
      files[content.tokenizer->file_name()] = file_record(aside / content.tokenizer->file_name());
      state["tokenizer"] = {{"file", content.tokenizer->file_name()}, {"hash", hex(content.tokenizer->hash())}};
    }
    state["files"] = files;
    write_json(aside / kStateFile, state);
    fs::remove_all(dir, ignored);
    publish(aside, dir);
  } catch (...) {
    fs::remove_all(aside, ignored);
    throw;
  }
}

CheckpointInfo read_checkpoint(const fs::path& dir) {
  const fs::path path = dir / kStateFile;
  const Json state = read_json(path);
  const int format = field<int>(state, "format", path);
  require(format == kFormat, "{}: format {}, but this program reads format {}", path.string(), format, kFormat);
  CheckpointInfo info;
  info.step = field<int64_t>(state, "step", path);
  info.model = ModelConfig::from_json(field<Json>(state, "model", path), path.string());
  const auto files = field<Json>(state, "files", path);
  for (const auto& [name, record] : files.items()) {
    require(name.find('/') == std::string::npos, "{}: file name '{}' leaves the directory", path.string(), name);
    check_file(dir / name, record);
  }
  if (state.contains("optimizer")) {
    info.training.emplace();
    info.training->optimizer = field<std::map<std::string, double>>(state, "optimizer", path);
    info.training->options = field<Json>(state, "train", path);
  }
  if (state.contains("tokenizer")) {
    const Json& t = state["tokenizer"];
    info.tokenizer_file = field<std::string>(t, "file", path);
    const auto text = field<std::string>(t, "hash", path);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), info.tokenizer_hash, 16);
    require(error == std::errc() && end == text.data() + text.size(), "{}: tokenizer hash '{}' is not a hex number",
            path.string(), text);
  }
  return info;
}

void load_weights(const fs::path& dir, Transformer& model) {
  const Safetensors file(dir / kModelFile);
  Parameters& parameters = model.parameters();
  require(file.tensors().size() == parameters.tensors().size(),
          "{}: {} tensors, the model has {}. Another model's checkpoint?", file.path().string(), file.tensors().size(),
          parameters.tensors().size());
  fill_block(file, parameters, parameters.values(), "");
}

void load_blocks(const fs::path& dir, const Transformer& model, const std::vector<Block>& blocks) {
  const Safetensors file(dir / kOptimizerFile);
  for (const Block& b : blocks) fill_block(file, model.parameters(), b.numbers, b.prefix);
}

std::vector<int64_t> checkpoint_steps(const RunDir& run) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.checkpoints(), error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    const auto [end, bad] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (bad == std::errc() && end == name.data() + name.size()) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path find_checkpoint(const fs::path& path) {
  if (fs::exists(path / kStateFile)) return path;
  const RunDir run(path);
  const std::vector<int64_t> steps = checkpoint_steps(run);
  require(!steps.empty(), "{}: neither a run nor a checkpoint (no {} and no {} in it)", path.string(), kStateFile,
          run.checkpoints().string());
  if (fs::exists(run.best())) {
    const fs::path best = run.checkpoint(field<int64_t>(read_json(run.best()), "step", run.best()));
    if (fs::exists(best / kStateFile)) return best;
  }
  return run.checkpoint(steps.back());
}

}  // namespace longshot
