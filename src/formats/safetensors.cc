#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace longshot {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors and this reader are little-endian");

constexpr uint64_t kHeaderLimit = 100'000'000;                          // the format's own
constexpr JsonLimits kHeaderLimits{.bytes = kHeaderLimit, .depth = 3};  // {name: {shape: [..]}}
constexpr uint64_t kAlignment = 8;
constexpr const char* kMetadataKey = "__metadata__";

uint64_t unsigned_at(const std::string& file, const std::string& tensor, const JsonTree& value, const char* what) {
  require(value.is_number_unsigned(), "{}: tensor \"{}\": {} has the value {}, not a whole number from 0 on", file,
          tensor, what, value.dump());
  return value.get<uint64_t>();
}

const JsonTree& array_field(const std::string& file, const std::string& tensor, const JsonTree& object,
                            const char* key) {
  const auto field = object.find(key);
  require(field != object.end() && field->is_array(), "{}: tensor \"{}\" has no list \"{}\"", file, tensor, key);
  return *field;
}

NamedTensor read_entry(const std::string& file, const std::string& name, const JsonTree& object,
                       std::span<const std::byte> data) {
  require(object.is_object(), "{}: the entry of tensor \"{}\" is not an object", file, name);
  require(object.size() == 3, "{}: the entry of tensor \"{}\" has {} fields, not dtype, shape and data_offsets", file,
          name, object.size());
  NamedTensor tensor{.name = name, .dtype = {}, .shape = {}, .bytes = {}};

  const auto type = object.find("dtype");
  require(type != object.end() && type->is_string(), "{}: tensor \"{}\" has no text \"dtype\"", file, name);
  const auto dtype = dtype_of_name(type->get<std::string>());
  require(dtype.has_value(), "{}: tensor \"{}\" has the element type \"{}\", which this program does not read", file,
          name, type->get<std::string>());
  tensor.dtype = *dtype;

  for (const JsonTree& extent : array_field(file, name, object, "shape")) {
    const uint64_t value = unsigned_at(file, name, extent, "an extent");
    require(value <= INT64_MAX, "{}: tensor \"{}\": the extent {} is not possible", file, name, value);
    tensor.shape.push_back(static_cast<int64_t>(value));
  }
  const auto count = element_count(tensor.shape);
  require(count && static_cast<uint64_t>(*count) <= data.size(),
          "{}: tensor \"{}\" of shape {} cannot lie in {} bytes of data", file, name, shape_text(tensor.shape),
          data.size());

  const JsonTree& offsets = array_field(file, name, object, "data_offsets");
  require(offsets.size() == 2, "{}: tensor \"{}\" has {} data_offsets, not 2", file, name, offsets.size());
  const uint64_t begin = unsigned_at(file, name, offsets[0], "a data offset");
  const uint64_t end = unsigned_at(file, name, offsets[1], "a data offset");
  require(begin <= end && end <= data.size(),
          "{}: tensor \"{}\" claims the bytes {}..{} of {}. Was the copy interrupted?", file, name, begin, end,
          data.size());
  const uint64_t expected = static_cast<uint64_t>(*count) * dtype_size(tensor.dtype);
  require(end - begin == expected, "{}: tensor \"{}\" of type {} and shape {} needs {} bytes but has {}", file, name,
          dtype_name(tensor.dtype), shape_text(tensor.shape), expected, end - begin);
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

SafetensorsMetadata read_metadata(const std::string& file, const JsonTree& object) {
  require(object.is_object(), "{}: {} is not an object", file, kMetadataKey);
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : object.items()) {
    require(value.is_string(), "{}: {} \"{}\" is not text", file, kMetadataKey, key);
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

uint64_t byte_count(const std::string& file, const StreamedTensor& t) {
  const auto count = element_count(t.shape);
  require(count.has_value(), "{}: no tensor \"{}\" can have the shape {}", file, t.name, shape_text(t.shape));
  return static_cast<uint64_t>(*count) * dtype_size(t.dtype);
}

std::string header_text(const std::string& file, std::span<const StreamedTensor> tensors,
                        const SafetensorsMetadata& metadata) {
  std::string text = "{";
  const auto add = [&](const std::string& name, const Json& value) {
    try {
      text += (text.size() > 1 ? "," : "") + Json(name).dump() + ":" + value.dump();
    } catch (const Json::exception&) {
      fail("{}: cannot write the name or text \"{}\": it is not UTF-8", file, name);
    }
  };
  std::set<std::string_view> seen{kMetadataKey};
  if (!metadata.empty()) add(kMetadataKey, metadata);
  uint64_t offset = 0;
  for (const StreamedTensor& t : tensors) {
    require(seen.insert(t.name).second, "{}: cannot write two tensors of the name \"{}\"", file, t.name);
    const uint64_t end = offset + byte_count(file, t);
    add(t.name, {{"dtype", dtype_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {offset, end}}});
    offset = end;
  }
  text += "}";
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  require(text.size() <= kHeaderLimit, "{}: a header of {} bytes is above the format's limit of {}", file, text.size(),
          kHeaderLimit);
  return text;
}

}  // namespace

uint64_t write_safetensors(const fs::path& path, std::span<const StreamedTensor> tensors,
                           const SafetensorsMetadata& metadata, const Watch& watch, Checksum* sum) {
  const std::string header = header_text(path.string(), tensors, metadata);
  const uint64_t length = header.size();
  uint64_t total = sizeof length + length;
  for (const StreamedTensor& t : tensors) total += byte_count(path.string(), t);
  OutputFile out(path);
  const auto write = [&](std::span<const std::byte> bytes) {
    if (sum) sum->add(bytes);
    out.write(bytes.data(), bytes.size());
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  for (const StreamedTensor& t : tensors) {
    const uint64_t begin = out.position(), expected = byte_count(path.string(), t);
    t.give([&](std::span<const std::byte> bytes) {
      write(bytes);
      watch.at(static_cast<double>(out.position()) / static_cast<double>(total));
    });
    require(out.position() - begin == expected, "{}: tensor \"{}\" of type {} and shape {} cannot have {} bytes",
            path.string(), t.name, dtype_name(t.dtype), shape_text(t.shape), out.position() - begin);
  }
  out.close();
  return total;
}

uint64_t write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                           const SafetensorsMetadata& metadata) {
  std::vector<StreamedTensor> streamed;
  for (const NamedTensor& t : tensors)
    streamed.push_back({t.name, t.dtype, t.shape, [bytes = t.bytes](const ByteSink& sink) { sink(bytes); }});
  return write_safetensors(path, std::span<const StreamedTensor>(streamed), metadata);
}

Safetensors::Safetensors(const fs::path& path) : file_(path) {
  const std::string file = path.string();
  uint64_t length = 0;
  require(file_.size() >= sizeof length, "{}: {} bytes are too few for a safetensors file. Was it written whole?", file,
          file_.size());
  std::memcpy(&length, file_.bytes().data(), sizeof length);
  require(length <= kHeaderLimit, "{}: claims a header of {} bytes, above the format's limit of {}. Is it safetensors?",
          file, length, kHeaderLimit);
  require(length <= file_.size() - sizeof length,
          "{}: claims a header of {} bytes, but only {} follow. Was the copy interrupted?", file, length,
          file_.size() - sizeof length);
  const JsonTree header = parse_json_tree(file_.text().substr(sizeof length, length), file + ", header", kHeaderLimits);
  require(header.is_object(), "{}: the header is not a JSON object", file);
  const std::span<const std::byte> data = file_.bytes().subspan(sizeof length + length);

  for (const auto& [name, object] : header.items()) {
    if (name == kMetadataKey) {
      metadata_ = read_metadata(file, object);
    } else {
      tensors_.push_back(read_entry(file, name, object, data));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
  uint64_t end = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto begin = static_cast<uint64_t>(tensors_[i].bytes.data() - data.data());
    require(begin == end, "{}: tensor \"{}\" begins at byte {} but the one in front of it ends at {}", file,
            tensors_[i].name, begin, end);
    end = begin + tensors_[i].bytes.size();
    index_.emplace(tensors_[i].name, i);
  }
  require(end == data.size(), "{}: the tensors end at byte {} but the file has {} bytes of data", file, end,
          data.size());
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const NamedTensor& t : tensors_) names.push_back(t.name);
  return names;
}

const NamedTensor* Safetensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const NamedTensor& Safetensors::at(std::string_view name) const {
  const NamedTensor* tensor = find(name);
  require(tensor, "{}: has no tensor \"{}\" among its {}", path().string(), name, tensors_.size());
  return *tensor;
}

void Safetensors::read(std::string_view name, std::span<float> out) const {
  const NamedTensor& tensor = at(name);
  require(is_floating(tensor.dtype), "{}: tensor \"{}\" has elements of type {}, not floating-point", path().string(),
          name, dtype_name(tensor.dtype));
  const size_t count = tensor.bytes.size() / dtype_size(tensor.dtype);
  require(count == out.size(), "{}: tensor \"{}\" of shape {} has {} elements, but {} are wanted", path().string(),
          name, shape_text(tensor.shape), count, out.size());
  convert_to_float(tensor.dtype, tensor.bytes, out);
}

}  // namespace longshot
