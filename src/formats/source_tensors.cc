#include "formats/source_tensors.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {

int64_t SourceTensor::row_elements() const {
  const Shape rest(shape.begin() + (shape.empty() ? 0 : 1), shape.end());
  return element_count(rest).value_or(0);
}

SourceTensor source_tensor(const NamedTensor& tensor, const MappedFile* file) {
  SourceTensor source{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .read = {}};
  source.read = [file, bytes = tensor.bytes, width = source.row_bytes()](int64_t first, int64_t count,
                                                                         std::span<std::byte> out) {
    const auto rows = bytes.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(count) * width);
    if (file) {
      file->copy(rows, out);
    } else {
      std::ranges::copy(rows, out.begin());
    }
  };
  return source;
}

SourceTensor source_tensor(const std::string& name, const TorchTensor& tensor, const MappedFile& file) {
  if (tensor.is_contiguous()) {
    const size_t width = dtype_size(tensor.dtype);
    const auto bytes = tensor.size() == 0 ? std::span<const std::byte>()
                                          : tensor.storage.subspan(static_cast<size_t>(tensor.offset) * width,
                                                                   static_cast<size_t>(tensor.size()) * width);
    return source_tensor(NamedTensor{name, tensor.dtype, tensor.shape, bytes}, &file);
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
  for (const NamedTensor& t : file->tensors()) all.add(source_tensor(t, &file->file()));
  all.keep_open(file);
  return all;
}

const SourceTensor* SourceTensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace longshot
