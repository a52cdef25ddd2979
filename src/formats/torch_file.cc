#include "formats/torch_file.h"

#include <array>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

constexpr int64_t kStreamProtocol = 1001;
// The first pickle of a stream: protocol 2, LONG1 of 10 bytes, the magic number.
constexpr std::string_view kStreamStart("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<StorageType, 10> kStorageTypes{{{"FloatStorage", DType::kF32},
                                                     {"HalfStorage", DType::kF16},
                                                     {"BFloat16Storage", DType::kBF16},
                                                     {"DoubleStorage", DType::kF64},
                                                     {"LongStorage", DType::kI64},
                                                     {"IntStorage", DType::kI32},
                                                     {"ShortStorage", DType::kI16},
                                                     {"CharStorage", DType::kI8},
                                                     {"ByteStorage", DType::kU8},
                                                     {"BoolStorage", DType::kBool}}};

std::optional<DType> storage_dtype(PickleValue type) {
  const auto* global = type->get<PickleGlobal>();
  if (!global || (global->module != "torch" && global->module != "torch.cuda")) return std::nullopt;
  for (const StorageType& t : kStorageTypes) {
    if (t.name == global->name) return t.dtype;
  }
  return std::nullopt;
}

// ('storage', type, key, device, elements) in a zip; the stream adds None or (view key, first element,
// elements).
struct StorageId {
  DType dtype;
  std::string_view key;
  int64_t elements;
  int64_t view_offset = 0, view_elements;
};

// None for what is not a storage: the stream also marks module classes by ('module', ...).
std::optional<StorageId> read_storage_id(const PickleReference& reference, const std::string& file) {
  const auto* id = reference.id->get<PickleSequence>();
  require(id && !id->elements.empty(), "{}: a persistent id is not a tuple", file);
  const auto& parts = id->elements;
  if (pickle_text(parts[0]) != "storage") return std::nullopt;
  require(parts.size() == 5 || parts.size() == 6, "{}: a storage's id has {} parts instead of 5 or 6", file,
          parts.size());
  const auto dtype = storage_dtype(parts[1]);
  const auto key = pickle_text(parts[2]);
  const auto elements = pickle_int(parts[4]);
  constexpr size_t kLongestKey = 200;  // PyTorch's are numbers; longer ones would be compared again and again
  require(key && key->size() <= kLongestKey && elements && *elements >= 0, "{}: a storage's id has no key or no size",
          file);
  require(dtype.has_value(), "{}: storage {} has an element type that this program does not read", file, shown(*key));
  StorageId storage{*dtype, *key, *elements, 0, *elements};
  if (parts.size() == 6 && !parts[5]->get<PickleNone>()) {
    const auto* view = parts[5]->get<PickleSequence>();
    const bool complete = view && view->elements.size() == 3;
    const auto offset = complete ? pickle_int(view->elements[1]) : std::nullopt;
    const auto size = complete ? pickle_int(view->elements[2]) : std::nullopt;
    require(offset && size && *offset >= 0 && *size >= 0 && *offset <= *elements && *size <= *elements - *offset,
            "{}: a view of storage {} does not lie inside its {} elements", file, shown(*key), *elements);
    storage.view_offset = *offset;
    storage.view_elements = *size;
  }
  return storage;
}

std::optional<Shape> read_extents(PickleValue value) {
  const auto* sequence = value->get<PickleSequence>();
  constexpr size_t kMaxRank = 16;
  if (!sequence || sequence->elements.size() > kMaxRank) return std::nullopt;
  Shape extents;
  for (const PickleValue element : sequence->elements) {
    const auto extent = pickle_int(element);
    if (!extent || *extent < 0) return std::nullopt;
    extents.push_back(*extent);
  }
  return extents;
}

// The last storage element that the tensor uses; none if it overflows. All extents are positive.
std::optional<int64_t> last_element(const TorchTensor& t) {
  int64_t last = t.offset;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    int64_t step = 0;
    if (__builtin_mul_overflow(t.shape[d] - 1, t.strides[d], &step)) return std::nullopt;
    if (__builtin_add_overflow(last, step, &last)) return std::nullopt;
  }
  return last;
}

// Calls row(first element in storage, first element of the result, count, stride) for every innermost row.
template <class Row>
void for_each_row(const TorchTensor& t, Row row) {
  const int64_t total = t.size();
  if (total == 0) return;
  if (t.is_contiguous()) return row(t.offset, 0, total, 1);
  const size_t rank = t.shape.size();
  const int64_t count = t.shape[rank - 1], stride = t.strides[rank - 1];
  std::vector<int64_t> index(rank, 0);
  int64_t from = t.offset;
  for (int64_t to = 0; to < total; to += count) {
    row(from, to, count, stride);
    for (size_t d = rank - 1; d-- > 0;) {
      from += t.strides[d];
      if (++index[d] < t.shape[d]) break;
      from -= t.strides[d] * t.shape[d];
      index[d] = 0;
    }
  }
}

std::vector<std::byte> gathered(const TorchTensor& t) {
  std::vector<std::byte> out(static_cast<size_t>(t.size()) * dtype_size(t.dtype));
  copy_elements(t, out);
  return out;
}

}  // namespace

bool TorchTensor::is_contiguous() const {
  int64_t expected = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

bool looks_like_torch_file(const fs::path& path) {
  const MappedFile file(path);
  return looks_like_zip(file.bytes()) || file.text().starts_with(kStreamStart);
}

TorchFile::TorchFile(const fs::path& path) : file_(path) {
  if (looks_like_zip(file_.bytes())) {
    read_zip();
  } else {
    container_ = Container::kStream;
    read_stream();
  }
}

const TorchTensor* TorchFile::tensor(PickleValue value) const {
  const auto found = tensors_.find(value);
  return found == tensors_.end() ? nullptr : &found->second;
}

void TorchFile::verify_checksums(const Watch& watch) const {
  size_t bytes = 0;
  for (const auto& [entry, stored] : entries_) {
    watch.at(static_cast<double>(bytes) / static_cast<double>(file_.size()));
    check_crc32(stored, entry, name());
    bytes += stored.data.size();
  }
  watch.at(1);
}

void TorchFile::read_zip() {
  entries_ = zip_entries(file_.bytes(), name());
  constexpr std::string_view kPickle = "/data.pkl";
  std::string prefix;
  for (const auto& [entry, stored] : entries_) {
    if (!entry.ends_with(kPickle)) continue;
    require(prefix.empty(), "{}: has two pickles, {}{} and {}", name(), shown(prefix), kPickle, shown(entry));
    prefix = entry.substr(0, entry.size() - kPickle.size());
  }
  require(!prefix.empty(), "{}: a zip archive without data.pkl, so not a PyTorch file", name());
  if (const auto order = entries_.find(prefix + "/byteorder"); order != entries_.end()) {
    const std::span<const std::byte> bytes = order->second.data;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    require(text == "little", "{}: has byte order \"{}\", this program reads little", name(), shown(text));
  }
  const StoredEntry& object = entries_.at(prefix + std::string(kPickle));
  check_crc32(object, kPickle.substr(1), name());
  pickle_ = std::make_unique<Pickle>(object.data, name());

  Storages storages = collect_storages();  // NOLINT(*-const-correctness): written below
  for (auto& [key, storage] : storages) {
    const auto entry = entries_.find(fmt::format("{}/data/{}", prefix, key));
    require(entry != entries_.end(), "{}: storage {} is not in the archive", name(), shown(key));
    storage.bytes = entry->second.data;
    const size_t width = dtype_size(storage.dtype);
    require(storage.bytes.size() / width == static_cast<size_t>(storage.elements) && storage.bytes.size() % width == 0,
            "{}: storage {} of {} {} elements cannot have {} bytes", name(), shown(key), storage.elements,
            dtype_name(storage.dtype), storage.bytes.size());
  }
  build_tensors(storages);
}

// Five pickles (magic number, protocol, facts about the machine, the object, the storages' keys), then for
// each key the number of elements (8 bytes) and the elements.
void TorchFile::read_stream() {
  std::span<const std::byte> rest = file_.bytes();
  const auto next = [&] {
    auto pickle = std::make_unique<Pickle>(rest, name());
    rest = rest.subspan(pickle->size());
    return pickle;
  };
  require(file_.text().starts_with(kStreamStart),
          "{}: neither a zip nor a stream written by torch.save. Is it a PyTorch file?", name());
  next();
  const auto protocol = next();
  require(pickle_int(protocol->root()) == kStreamProtocol, "{}: the stream's protocol is not {}", name(),
          kStreamProtocol);
  const auto machine = next();
  const PickleItems* facts = pickle_fields(machine->root());
  const PickleValue little = facts ? find_field(*facts, "little_endian") : nullptr;
  require(little && little->get<bool>() && *little->get<bool>(),
          "{}: was written by a machine that is not little-endian, or is damaged", name());
  pickle_ = next();
  const auto keys = next();
  const auto* list = keys->root()->get<PickleSequence>();
  require(list, "{}: the list of storages is not a list", name());

  Storages storages = collect_storages();
  for (const PickleValue value : list->elements) {
    const auto key = pickle_text(value);
    const auto found = key ? storages.find(*key) : storages.end();
    require(found != storages.end(), "{}: nothing refers to the storage {}", name(),
            shown(key.value_or("without a name")));
    Storage& storage = found->second;
    require(storage.bytes.data() == nullptr, "{}: storage {} comes twice", name(), shown(*key));
    int64_t elements = 0;
    require(rest.size() >= sizeof elements, "{}: ends before storage {}. Was the copy interrupted?", name(),
            shown(*key));
    std::memcpy(&elements, rest.data(), sizeof elements);
    rest = rest.subspan(sizeof elements);
    require(elements == storage.elements, "{}: storage {} has {} elements, but the pickle says {}", name(), shown(*key),
            elements, storage.elements);
    const size_t width = dtype_size(storage.dtype);
    require(static_cast<size_t>(elements) <= rest.size() / width,
            "{}: storage {} of {} {} elements does not fit into the {} bytes left. Was the copy interrupted?", name(),
            shown(*key), elements, dtype_name(storage.dtype), rest.size());
    storage.bytes = rest.first(static_cast<size_t>(elements) * width);
    rest = rest.subspan(storage.bytes.size());
  }
  for (const auto& [key, storage] : storages) {
    require(storage.bytes.data() != nullptr, "{}: storage {} is not in the file", name(), shown(key));
  }
  build_tensors(storages);
}

TorchFile::Storages TorchFile::collect_storages() const {
  Storages storages;
  for (const PickleNode& node : pickle_->nodes()) {
    const auto* reference = node.get<PickleReference>();
    const auto id = reference ? read_storage_id(*reference, name()) : std::nullopt;
    if (!id) continue;
    const auto [known, fresh] = storages.emplace(id->key, Storage{id->dtype, id->elements, {}});
    require(fresh || (known->second.dtype == id->dtype && known->second.elements == id->elements),
            "{}: storage {} is {} {} elements in one place and {} {} in another", name(), shown(id->key),
            known->second.elements, dtype_name(known->second.dtype), id->elements, dtype_name(id->dtype));
  }
  return storages;
}

void TorchFile::build_tensors(const Storages& storages) {
  for (const PickleNode& node : pickle_->nodes()) {
    const auto* call = node.get<PickleRecord>();
    if (!call) continue;
    if (is_global(call->callable, "torch._utils", "_rebuild_tensor_v2") ||
        is_global(call->callable, "torch._utils", "_rebuild_tensor")) {
      tensors_.emplace(&node, rebuild(*call, storages));
    } else if (is_global(call->callable, "torch._utils", "_rebuild_parameter")) {
      const auto& arguments = call->arguments->get<PickleSequence>()->elements;
      const TorchTensor* data = arguments.empty() ? nullptr : tensor(arguments[0]);
      require(data, "{}: a parameter is made of something other than a tensor", name());
      tensors_.emplace(&node, TorchTensor(*data));
    }
  }
}

// (storage, first element, shape, strides, ...)
TorchTensor TorchFile::rebuild(const PickleRecord& call, const Storages& storages) const {
  const auto& arguments = call.arguments->get<PickleSequence>()->elements;
  require(arguments.size() >= 4, "{}: a tensor is made of {} parts, at least 4 are needed", name(), arguments.size());
  const auto* reference = arguments[0]->get<PickleReference>();
  const auto id = reference ? read_storage_id(*reference, name()) : std::nullopt;
  const auto offset = pickle_int(arguments[1]);
  const auto shape = read_extents(arguments[2]), strides = read_extents(arguments[3]);
  require(id && offset && *offset >= 0 && shape && strides && shape->size() == strides->size(),
          "{}: a tensor's storage, offset, shape or strides are not what they should be", name());

  const Storage& whole = storages.find(id->key)->second;
  const size_t width = dtype_size(id->dtype);
  TorchTensor tensor{id->dtype, *shape, *strides, *offset,
                     whole.bytes.subspan(static_cast<size_t>(id->view_offset) * width,
                                         static_cast<size_t>(id->view_elements) * width)};
  const auto count = element_count(tensor.shape);
  // A stride of 0 repeats elements without end: nobody shall allocate more than the file could have held.
  require(count && static_cast<uint64_t>(*count) <= file_.size(),
          "{}: a tensor of shape {} is more than a file of {} bytes can hold", name(), shape_text(tensor.shape),
          file_.size());
  const auto last = *count == 0 ? std::optional<int64_t>(-1) : last_element(tensor);
  require(last && *last < id->view_elements,
          "{}: a tensor of shape {} from element {} on leaves storage {} of {} elements", name(),
          shape_text(tensor.shape), tensor.offset, shown(id->key), id->view_elements);
  return tensor;
}

void copy_elements(const TorchTensor& t, std::span<std::byte> out) {
  const size_t width = dtype_size(t.dtype);
  for_each_row(t, [&](int64_t from, int64_t to, int64_t count, int64_t stride) {
    if (stride == 1) {
      std::memcpy(&out[static_cast<size_t>(to) * width], &t.storage[static_cast<size_t>(from) * width],
                  static_cast<size_t>(count) * width);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&out[static_cast<size_t>(to + i) * width], &t.storage[static_cast<size_t>(from + i * stride) * width],
                  width);
    }
  });
}

void copy_to_float(const TorchTensor& tensor, std::span<float> out) {
  require(is_floating(tensor.dtype), "elements of type {} are not floating-point numbers", dtype_name(tensor.dtype));
  require(static_cast<int64_t>(out.size()) == tensor.size(), "a tensor of shape {} does not have {} elements",
          shape_text(tensor.shape), out.size());
  const size_t width = dtype_size(tensor.dtype);
  for_each_row(tensor, [&](int64_t from, int64_t to, int64_t count, int64_t stride) {
    if (stride == 1) {
      return convert_to_float(tensor.dtype, tensor.storage.subspan(static_cast<size_t>(from) * width),
                              out.subspan(static_cast<size_t>(to), static_cast<size_t>(count)));
    }
    for (int64_t i = 0; i < count; ++i) {
      convert_to_float(tensor.dtype, tensor.storage.subspan(static_cast<size_t>(from + i * stride) * width),
                       out.subspan(static_cast<size_t>(to + i), 1));
    }
  });
}

bool same_content(const TorchTensor& a, const TorchTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.size() == 0) return true;
  if (a.storage.data() == b.storage.data() && a.offset == b.offset && a.strides == b.strides) return true;
  if (a.is_contiguous() && b.is_contiguous()) {
    const size_t width = dtype_size(a.dtype);
    return std::memcmp(a.storage.data() + static_cast<size_t>(a.offset) * width,
                       b.storage.data() + static_cast<size_t>(b.offset) * width,
                       static_cast<size_t>(a.size()) * width) == 0;
  }
  return gathered(a) == gathered(b);
}

}  // namespace longshot
