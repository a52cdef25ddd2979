#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF and this reader are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;  // where the file says nothing
constexpr uint64_t kMostAlignment = 1 << 20;
constexpr uint64_t kLongestKey = 65535;  // the format's own
constexpr uint64_t kLongestName = 64;    // of a tensor: the format's own
constexpr uint32_t kMostExtents = 4;     // the format's own
constexpr const char* kAlignmentKey = "general.alignment";

struct TypeEntry {
  std::string_view name;
  uint64_t size;  // 0: it varies
};
constexpr std::array<TypeEntry, 13> kTypes{{{"u8", 1},
                                            {"i8", 1},
                                            {"u16", 2},
                                            {"i16", 2},
                                            {"u32", 4},
                                            {"i32", 4},
                                            {"f32", 4},
                                            {"bool", 1},
                                            {"text", 0},
                                            {"list", 0},
                                            {"u64", 8},
                                            {"i64", 8},
                                            {"f64", 8}}};

const TypeEntry& entry(GgufType type) { return kTypes[static_cast<size_t>(type)]; }

template <class T>
T number_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Walks over the file's bytes; whatever would lead beyond their end is an Error.
class Walk {
 public:
  Walk(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::string_view take(uint64_t size, std::string_view what) {
    require(size <= bytes_.size() - at_,
            "{}: {} needs {} bytes from byte {} on, but the file ends after {}. Was the copy interrupted?", file_,
            shown(what), size, at_, bytes_.size());
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }
  template <class T>
  T number(std::string_view what) {
    return number_at<T>(take(sizeof(T), what).data());
  }
  std::string_view text(std::string_view what) { return take(number<uint64_t>(what), what); }
  uint64_t at() const { return at_; }
  std::string_view since(uint64_t begin) const { return bytes_.substr(begin, at_ - begin); }

  GgufType type(std::string_view what) {
    const auto value = number<uint32_t>(what);
    require(value < kTypes.size(), "{}: the key \"{}\" has a value of type {}, which is not known", file_, shown(what),
            value);
    return static_cast<GgufType>(value);
  }
  void values(GgufType of, uint64_t count, std::string_view what) {
    if (of == GgufType::kText) {
      for (uint64_t i = 0; i < count; ++i) text(what);
      return;
    }
    const uint64_t size = entry(of).size;
    require(count <= bytes_.size() / size, "{}: the key \"{}\" has {} values, but the file only {} bytes", file_,
            shown(what), count, bytes_.size());
    const std::string_view taken = take(count * size, what);
    if (of != GgufType::kBool) return;
    for (const char c : taken)
      require(c == 0 || c == 1, "{}: the key \"{}\" has a truth value of {}", file_, shown(what), int{c});
  }

 private:
  std::string_view bytes_;
  uint64_t at_ = 0;
  const std::string& file_;
};

GgufKey read_key(Walk& walk, const std::string& file) {
  GgufKey key;
  key.name = walk.text("a key");
  require(!key.name.empty() && key.name.size() <= kLongestKey, "{}: a key has a name of {} bytes, not 1 to {}", file,
          key.name.size(), kLongestKey);
  key.type = walk.type(key.name);
  if (key.type == GgufType::kList) {
    key.element = walk.type(key.name);
    require(key.element != GgufType::kList, "{}: the key \"{}\" is a list of lists, which is not supported", file,
            shown(key.name));
    key.count = walk.number<uint64_t>(key.name);
  }
  const uint64_t begin = walk.at();
  walk.values(key.type == GgufType::kList ? key.element : key.type, key.count, key.name);
  key.bytes = walk.since(begin);
  return key;
}

struct PlacedTensor {
  GgufTensor tensor;
  uint64_t offset, size;
};

PlacedTensor read_tensor(Walk& walk, const std::string& file, uint64_t file_size) {
  GgufTensor tensor;
  tensor.name = walk.text("a tensor's name");
  require(!tensor.name.empty() && tensor.name.size() <= kLongestName,
          "{}: a tensor has a name of {} bytes, not 1 to {}", file, tensor.name.size(), kLongestName);
  const std::string name = shown(tensor.name);
  const auto extents = walk.number<uint32_t>(tensor.name);
  require(extents >= 1 && extents <= kMostExtents, "{}: tensor \"{}\" has {} dimensions, not 1 to {}", file, name,
          extents, kMostExtents);
  for (uint32_t i = 0; i < extents; ++i) {
    const auto extent = walk.number<uint64_t>(tensor.name);
    require(extent > 0 && extent <= INT64_MAX, "{}: tensor \"{}\": the extent {} is not possible", file, name, extent);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  const auto type = walk.number<uint32_t>(tensor.name);
  const GgmlLayout* layout = find_ggml_layout(type);
  require(layout, "{}: tensor \"{}\" has elements of type {}, which is not known", file, name, type);
  tensor.type = layout->type;
  const auto count = element_count(tensor.shape);
  require(count && static_cast<uint64_t>(*count) / layout->elements <= file_size / layout->bytes,
          "{}: tensor \"{}\" of type {} and shape {} cannot lie in a file of {} bytes", file, name, layout->name,
          shape_text(tensor.shape), file_size);
  require(static_cast<uint64_t>(tensor.shape.back()) % layout->elements == 0,
          "{}: tensor \"{}\" of shape {} has rows of {} elements, but type {} has blocks of {}", file, name,
          shape_text(tensor.shape), tensor.shape.back(), layout->name, layout->elements);
  const auto offset = walk.number<uint64_t>(tensor.name);
  return {std::move(tensor), offset, static_cast<uint64_t>(*count) / layout->elements * layout->bytes};
}

uint64_t rounded_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

uint64_t alignment_of(const Gguf& gguf) {
  const int64_t alignment = gguf.integer(kAlignmentKey).value_or(kAlignment);
  require(alignment > 0 && alignment <= static_cast<int64_t>(kMostAlignment) &&
              std::has_single_bit(static_cast<uint64_t>(alignment)),
          "{}: {} is {}, not a power of two up to {}", gguf.path().string(), kAlignmentKey, alignment, kMostAlignment);
  return static_cast<uint64_t>(alignment);
}

// Every tensor lies inside the data, at a multiple of the alignment, and none on another. Ordered by place.
std::vector<GgufTensor> placed(std::vector<PlacedTensor> tensors, std::span<const std::byte> data, uint64_t alignment,
                               const std::string& file) {
  std::ranges::sort(tensors, {}, &PlacedTensor::offset);
  std::vector<GgufTensor> out;
  out.reserve(tensors.size());
  uint64_t end = 0;
  for (PlacedTensor& t : tensors) {
    const std::string name = shown(t.tensor.name);
    require(t.offset % alignment == 0, "{}: tensor \"{}\" begins at byte {} of the data, not at a multiple of {}", file,
            name, t.offset, alignment);
    require(t.offset >= end, "{}: tensor \"{}\" begins at byte {} of the data, but the one in front of it ends at {}",
            file, name, t.offset, end);
    require(t.offset <= data.size() && t.size <= data.size() - t.offset,
            "{}: tensor \"{}\" of {} bytes begins at byte {} of {} bytes of data. Was the copy interrupted?", file,
            name, t.size, t.offset, data.size());
    end = t.offset + t.size;
    t.tensor.bytes = data.subspan(t.offset, t.size);
    out.push_back(std::move(t.tensor));
  }
  return out;
}

[[noreturn]] void refuse(const Gguf& gguf, const GgufKey& key, const char* wanted) {
  fail("{}: the key \"{}\" is of type {}{}, not {}", gguf.path().string(), shown(key.name), entry(key.type).name,
       key.type == GgufType::kList ? fmt::format(" of {}", entry(key.element).name) : "", wanted);
}

// Whole numbers up to 2^53 and floats come out exactly.
std::optional<double> scalar_number(GgufType type, const char* at) {
  switch (type) {
    case GgufType::kU8:
      return number_at<uint8_t>(at);
    case GgufType::kI8:
      return number_at<int8_t>(at);
    case GgufType::kU16:
      return number_at<uint16_t>(at);
    case GgufType::kI16:
      return number_at<int16_t>(at);
    case GgufType::kU32:
      return number_at<uint32_t>(at);
    case GgufType::kI32:
      return number_at<int32_t>(at);
    case GgufType::kF32:
      return number_at<float>(at);
    case GgufType::kU64:
      return static_cast<double>(number_at<uint64_t>(at));
    case GgufType::kI64:
      return static_cast<double>(number_at<int64_t>(at));
    case GgufType::kF64:
      return number_at<double>(at);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) { return entry(type).name; }

bool Gguf::is_one(const fs::path& path) {
  if (!fs::is_regular_file(path)) return false;
  std::array<char, 4> first{};
  std::ifstream in(path, std::ios::binary);
  in.read(first.data(), first.size());
  return in && std::string_view(first.data(), first.size()) == kMagic;
}

Gguf::Gguf(const fs::path& path) : file_(path) {
  const std::string file = path.string();
  Walk walk(file_.text(), file);
  require(walk.take(kMagic.size(), "the magic number") == kMagic, "{}: does not begin with \"GGUF\": not such a file",
          file);
  version_ = walk.number<uint32_t>("the version");
  require(version_ == 2 || version_ == 3, "{}: GGUF of version {}{}; versions 2 and 3 are read", file, version_,
          (version_ & 0xFFFF) == 0 ? " (is it big-endian?)" : "");
  const auto tensors = walk.number<uint64_t>("the number of tensors"), keys = walk.number<uint64_t>("of keys");
  const std::string_view rest = file_.text();
  // 14 bytes are the least that a key takes, 33 that a tensor does: no count is believed beyond that.
  require(keys <= rest.size() / 14 && tensors <= rest.size() / 33,
          "{}: claims {} keys and {} tensors, but has only {} bytes", file, keys, tensors, rest.size());

  keys_.reserve(keys);
  for (uint64_t i = 0; i < keys; ++i) keys_.push_back(read_key(walk, file));
  std::ranges::sort(keys_, {}, &GgufKey::name);
  const auto twice = std::ranges::adjacent_find(keys_, {}, &GgufKey::name);
  require(twice == keys_.end(), "{}: has the key \"{}\" twice", file, twice == keys_.end() ? "" : shown(twice->name));

  std::vector<PlacedTensor> found;
  found.reserve(tensors);
  for (uint64_t i = 0; i < tensors; ++i) found.push_back(read_tensor(walk, file, rest.size()));
  const uint64_t alignment = alignment_of(*this), begin = rounded_up(walk.at(), alignment);
  const std::span<const std::byte> bytes = file_.bytes();
  tensors_ = placed(std::move(found), begin < bytes.size() ? bytes.subspan(begin) : std::span<const std::byte>(),
                    alignment, file);

  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  const auto name_of = [this](uint32_t i) { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name_of);
  const auto again = std::ranges::adjacent_find(by_name_, {}, name_of);
  require(again == by_name_.end(), "{}: has the tensor \"{}\" twice", file,
          again == by_name_.end() ? "" : shown(name_of(*again)));
}

uint64_t Gguf::data_bytes() const {
  uint64_t sum = 0;
  for (const GgufTensor& t : tensors_) sum += t.bytes.size();
  return sum;
}

const GgufTensor* Gguf::find(std::string_view tensor) const {
  const auto name_of = [this](uint32_t i) { return tensors_[i].name; };
  const auto at = std::ranges::lower_bound(by_name_, tensor, {}, name_of);
  return at != by_name_.end() && name_of(*at) == tensor ? &tensors_[*at] : nullptr;
}

const GgufKey* Gguf::find_key(std::string_view key) const {
  const auto at = std::ranges::lower_bound(keys_, key, {}, &GgufKey::name);
  return at != keys_.end() && at->name == key ? &*at : nullptr;
}

std::optional<double> Gguf::number(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  const auto value = scalar_number(key->type, key->bytes.data());
  if (!value) refuse(*this, *key, "a number");
  return value;
}

std::optional<int64_t> Gguf::integer(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  if (key->type == GgufType::kF32 || key->type == GgufType::kF64) refuse(*this, *key, "a whole number");
  if (key->type == GgufType::kU64) {
    const auto value = number_at<uint64_t>(key->bytes.data());
    require(value <= INT64_MAX, "{}: the key \"{}\" has the value {}, which is not possible", path().string(),
            shown(name), value);
    return static_cast<int64_t>(value);
  }
  if (key->type == GgufType::kI64) return number_at<int64_t>(key->bytes.data());
  return static_cast<int64_t>(*number(name));
}

std::optional<bool> Gguf::boolean(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  if (key->type != GgufType::kBool) refuse(*this, *key, "true or false");
  return key->bytes[0] == 1;
}

std::optional<std::string> Gguf::text(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  if (key->type != GgufType::kText) refuse(*this, *key, "text");
  return std::string(key->bytes.substr(sizeof(uint64_t)));
}

std::optional<std::vector<std::string_view>> Gguf::texts(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  if (key->type != GgufType::kList || key->element != GgufType::kText) refuse(*this, *key, "a list of texts");
  std::vector<std::string_view> out;
  out.reserve(key->count);
  for (std::string_view rest = key->bytes; !rest.empty();) {
    const auto length = number_at<uint64_t>(rest.data());
    out.push_back(rest.substr(sizeof length, length));
    rest.remove_prefix(sizeof length + length);
  }
  return out;
}

std::optional<std::vector<double>> Gguf::numbers(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (!key) return std::nullopt;
  const uint64_t size = key->type == GgufType::kList ? entry(key->element).size : 0;
  if (size == 0 || key->element == GgufType::kBool) refuse(*this, *key, "a list of numbers");
  std::vector<double> out;
  out.reserve(key->count);
  for (uint64_t i = 0; i < key->count; ++i) out.push_back(*scalar_number(key->element, key->bytes.data() + i * size));
  return out;
}

template <class T>
void GgufKeys::put(T value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void GgufKeys::put_text(std::string_view text) {
  put(uint64_t{text.size()});
  bytes_ += text;
}

void GgufKeys::begin(std::string_view key, GgufType type) {
  assert(!key.empty() && key.size() <= kLongestKey);
  ++count_;
  put_text(key);
  put(static_cast<uint32_t>(type));
}

void GgufKeys::begin_list(std::string_view key, GgufType type, uint64_t count) {
  begin(key, GgufType::kList);
  put(static_cast<uint32_t>(type));
  put(count);
}

void GgufKeys::add(std::string_view key, std::string_view text) { begin(key, GgufType::kText), put_text(text); }
void GgufKeys::add(std::string_view key, bool value) { begin(key, GgufType::kBool), put(uint8_t{value}); }
void GgufKeys::add(std::string_view key, uint32_t value) { begin(key, GgufType::kU32), put(value); }
void GgufKeys::add(std::string_view key, float value) { begin(key, GgufType::kF32), put(value); }

void GgufKeys::add(std::string_view key, std::span<const std::string> texts) {
  begin_list(key, GgufType::kText, texts.size());
  for (const std::string& text : texts) put_text(text);
}
void GgufKeys::add(std::string_view key, std::span<const float> values) {
  begin_list(key, GgufType::kF32, values.size());
  for (const float value : values) put(value);
}
void GgufKeys::add(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, GgufType::kI32, values.size());
  for (const int32_t value : values) put(value);
}

namespace {

struct Placement {
  std::string infos;            // as the file holds them
  std::vector<uint64_t> sizes;  // of each tensor, in bytes
};

Placement place(std::span<const GgufOutput> tensors, const std::string& file) {
  Placement out;
  std::set<std::string_view> seen;
  uint64_t offset = 0;
  const auto put = [&](auto value) { out.infos.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (const GgufOutput& t : tensors) {
    const GgmlLayout& layout = ggml_layout(t.type);
    require(!t.name.empty() && t.name.size() < kLongestName && seen.insert(t.name).second,
            "{}: cannot write a tensor \"{}\": its name is empty, too long or there twice", file, shown(t.name));
    const auto count = element_count(t.shape);
    require(count && !t.shape.empty() && t.shape.size() <= kMostExtents &&
                static_cast<uint64_t>(t.shape.back()) % layout.elements == 0,
            "{}: cannot write tensor \"{}\" of shape {} as {}, whose blocks have {} elements", file, shown(t.name),
            shape_text(t.shape), layout.name, layout.elements);
    put(uint64_t{t.name.size()});
    out.infos += t.name;
    put(static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) put(static_cast<uint64_t>(t.shape[i]));
    put(static_cast<uint32_t>(t.type));
    put(offset);
    out.sizes.push_back(static_cast<uint64_t>(*count) / layout.elements * layout.bytes);
    offset = rounded_up(offset + out.sizes.back(), kAlignment);
  }
  return out;
}

}  // namespace

void write_gguf(const fs::path& path, const GgufKeys& keys, std::span<const GgufOutput> tensors,
                const GgufProducer& produce) {
  const Placement placement = place(tensors, path.string());
  OutputFile out(path);
  const auto put = [&](auto value) { out.write(&value, sizeof value); };
  const auto pad = [&] {
    static constexpr std::array<char, kAlignment> kZeros{};
    out.write(kZeros.data(), rounded_up(out.position(), kAlignment) - out.position());
  };
  out.write(kMagic);
  put(kVersion);
  put(uint64_t{tensors.size()});
  put(keys.count());
  out.write(keys.bytes());
  out.write(placement.infos);
  pad();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t begin = out.position();
    produce(i, [&](std::span<const std::byte> bytes) { out.write(bytes.data(), bytes.size()); });
    require(out.position() - begin == placement.sizes[i], "{}: tensor \"{}\" needs {} bytes but has {}", path.string(),
            shown(tensors[i].name), placement.sizes[i], out.position() - begin);
    pad();
  }
  out.close();
}

}  // namespace longshot
