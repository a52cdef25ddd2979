#include "formats/source_tensors.h"

#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {

int64_t SourceTensor::row_elements() const {
  const Shape rest(shape.begin() + (shape.empty() ? 0 : 1), shape.end());
  return element_count(rest).value_or(0);
}

SourceTensor source_tensor(const NamedTensor& tensor) {
  SourceTensor source{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .read = {}};
  source.bytes = tensor.bytes;
  source.read = [bytes = tensor.bytes, width = source.row_bytes()](int64_t first, int64_t count,
                                                                   std::span<std::byte> out) {
    if (count > 0) std::memcpy(out.data(), bytes.data() + static_cast<size_t>(first) * width, out.size());
  };
  return source;
}

SourceTensor source_tensor(const std::string& name, const TorchTensor& tensor) {
  if (tensor.is_contiguous()) {
    const size_t width = dtype_size(tensor.dtype);
    const auto bytes = tensor.size() == 0 ? std::span<const std::byte>()
                                          : tensor.storage.subspan(static_cast<size_t>(tensor.offset) * width,
                                                                   static_cast<size_t>(tensor.size()) * width);
    return source_tensor(NamedTensor{name, tensor.dtype, tensor.shape, bytes});
  }
  SourceTensor source{.name = name, .dtype = tensor.dtype, .shape = tensor.shape, .read = {}};
  source.read = [tensor](int64_t first, int64_t count, std::span<std::byte> out) {
    TorchTensor part = tensor;
    part.offset += first * part.strides[0];
    part.shape[0] = count;
    copy_elements(part, out);
  };
  return source;
}

void SourceTensors::add(SourceTensor tensor) {
  require(index_.emplace(tensor.name, tensors_.size()).second, "{}: has two tensors of the name '{}'", origin_,
          shown(tensor.name));
  tensors_.push_back(std::move(tensor));
}

SourceTensors source_tensors(const std::shared_ptr<const Safetensors>& file) {
  SourceTensors all(file->path().string());
  for (const NamedTensor& t : file->tensors()) all.add(source_tensor(t));
  all.keep_open(file);
  return all;
}

const SourceTensor* SourceTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace longshot
