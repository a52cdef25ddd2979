// The tensors of other programs' files, whatever the format: what is there, and rows of them on demand. Nothing is
// read before it is asked for.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dtype.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace longshot {

// A row is what lies behind the first extent: a vector has rows of one element.
struct SourceTensor {
  std::string name;
  DType dtype = DType::kF32;  // of what read() gives; a type of blocks is unpacked there
  Shape shape;
  // Rows first .. first + count - 1 one below the other; `out` has just their bytes.
  std::function<void(int64_t first, int64_t count, std::span<std::byte> out)> read;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t row_elements() const;
  size_t row_bytes() const { return static_cast<size_t>(row_elements()) * dtype_size(dtype); }
};

// Its rows are copied from memory, or, where the tensor lies in `file`, read from there.
SourceTensor source_tensor(const NamedTensor& tensor, const MappedFile* file = nullptr);
SourceTensor source_tensor(const std::string& name, const TorchTensor& tensor, const MappedFile& file);

class SourceTensors {
 public:
  explicit SourceTensors(std::string origin) : origin_(std::move(origin)) {}

  void add(SourceTensor tensor);  // Error where the name is taken
  void keep_open(std::shared_ptr<const void> file) { files_.push_back(std::move(file)); }

  const std::string& origin() const { return origin_; }  // what messages call the file or directory
  const std::vector<SourceTensor>& all() const { return tensors_; }
  const SourceTensor* find(std::string_view name) const;  // null when absent

 private:
  std::string origin_;
  std::vector<std::shared_ptr<const void>> files_;
  std::vector<SourceTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

// All of a safetensors file.
SourceTensors source_tensors(const std::shared_ptr<const Safetensors>& file);

}  // namespace longshot
