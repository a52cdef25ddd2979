#include "formats/hf_directory.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kSafetensors = "model.safetensors";
constexpr const char* kPickled = "pytorch_model.bin";
constexpr const char* kIndexEnding = ".index.json";
constexpr JsonLimits kConfigLimits{.bytes = size_t{16} << 20, .values = 1'000'000, .depth = 32};
constexpr JsonLimits kIndexLimits{.bytes = size_t{64} << 20, .values = 4'000'000, .depth = 8};

// Tensor to the name of its part, as an index has it.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const JsonTree json = parse_json_tree(read_text(path, kIndexLimits.bytes), path.string(), kIndexLimits);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          "{}: has no object \"weight_map\"", path.string());
  std::map<std::string, std::string> part_of;
  for (const auto& [tensor, part] : json["weight_map"].items()) {
    require(part.is_string(), "{}: the part of '{}' is not text", path.string(), shown(tensor));
    const auto& name = part.get_ref<const std::string&>();
    require(!name.empty() && !name.starts_with('.') && name.find_first_of("/\\") == std::string::npos &&
                name.find('\0') == std::string::npos,
            "{}: '{}' is not the plain name of a file", path.string(), shown(name));
    part_of.emplace(tensor, name);
  }
  require(!part_of.empty(), "{}: its weight_map names no tensor", path.string());
  return part_of;
}

HfFiles with_index(const fs::path& index, bool pickled) {
  HfFiles files{.index = index, .parts = {}, .pickled = pickled};
  std::set<std::string> names;
  for (const auto& [tensor, part] : read_index(index)) names.insert(part);
  for (const std::string& name : names) {
    const fs::path part = index.parent_path() / name;
    require(fs::exists(part), "{}: names '{}', which is not there. Was everything copied?", index.string(),
            shown(name));
    files.parts.push_back(part);
  }
  return files;
}

void add_safetensors(const fs::path& path, SourceTensors& tensors) {
  const auto file = std::make_shared<Safetensors>(path);
  for (const NamedTensor& t : file->tensors()) tensors.add(source_tensor(t, &file->file()));
  tensors.keep_open(file);
}

void add_pickled(const fs::path& path, SourceTensors& tensors) {
  const auto file = std::make_shared<TorchFile>(path);
  file->verify_checksums();
  const PickleItems* items = pickle_fields(file->root());
  require(items, "{}: a PyTorch file, but not a table of tensors", path.string());
  const uint64_t most = 2 * file->file_bytes();  // tied tensors share a storage
  uint64_t taken = 0;
  for (const auto& [key, value] : *items) {
    const auto name = pickle_text(key);
    const TorchTensor* tensor = file->tensor(value);
    require(name && tensor, "{}: '{}' is not a tensor with a name; a table of tensors was expected", path.string(),
            shown(name.value_or("?")));
    taken += static_cast<uint64_t>(tensor->size()) * dtype_size(tensor->dtype);
    require(taken <= most, "{}: its tensors have more than {} bytes, the file only {}: they repeat what it holds",
            path.string(), most, file->file_bytes());
    tensors.add(source_tensor(std::string(*name), *tensor, file->file()));
  }
  tensors.keep_open(file);
}

// Every tensor stands where the index says.
void check_index(const fs::path& index, const std::map<std::string, std::string>& part_of,
                 const std::map<std::string, std::string>& found) {
  for (const auto& [tensor, part] : part_of) {
    const auto at = found.find(tensor);
    require(at != found.end(), "{}: says that '{}' is in {}, but it is not. Are parts of two models mixed?",
            index.string(), shown(tensor), shown(part));
    require(at->second == part, "{}: says that '{}' is in {}, but it is in {}. Are parts of two models mixed?",
            index.string(), shown(tensor), shown(part), shown(at->second));
  }
  for (const auto& [tensor, part] : found) {
    require(part_of.contains(tensor), "{}: does not know '{}', which is in {}. Are parts of two models mixed?",
            index.string(), shown(tensor), shown(part));
  }
}

}  // namespace

bool is_hf_directory(const fs::path& path) { return fs::is_regular_file(path / kConfigFile); }

HfFiles hf_files(const fs::path& dir) {
  for (const bool pickled : {false, true}) {
    const fs::path whole = dir / (pickled ? kPickled : kSafetensors);
    if (fs::exists(whole)) return {.index = {}, .parts = {whole}, .pickled = pickled};
    fs::path index = whole;
    index += kIndexEnding;
    if (fs::exists(index)) return with_index(index, pickled);
  }
  fail("{}: holds no tensors: neither {} nor {}, nor an index of their parts ({}{})", dir.string(), kSafetensors,
       kPickled, kSafetensors, kIndexEnding);
}

SourceTensors open_hf_tensors(const fs::path& dir, const Watch& watch) {
  const HfFiles files = hf_files(dir);
  SourceTensors tensors(dir.string());
  std::map<std::string, std::string> found;
  double done = 0;
  for (const fs::path& part : files.parts) {
    const size_t before = tensors.all().size();
    files.pickled ? add_pickled(part, tensors) : add_safetensors(part, tensors);
    for (size_t i = before; i < tensors.all().size(); ++i)
      found.emplace(tensors.all()[i].name, part.filename().string());
    watch.at(++done / static_cast<double>(files.parts.size()));
  }
  if (!files.index.empty()) check_index(files.index, read_index(files.index), found);
  return tensors;
}

HfModel read_hf_model(const fs::path& dir) {
  const fs::path path = dir / kConfigFile;
  HfConfig json(parse_json_tree(read_text(path, kConfigLimits.bytes), path.string(), kConfigLimits), path.string());
  const Family& family = family_of(json);
  ModelConfig config = read_config(family, json);
  return {&family, std::move(json), std::move(config)};
}

}  // namespace longshot
