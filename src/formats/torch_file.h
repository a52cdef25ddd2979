// Reads what torch.save wrote: the zip container and the older stream. The file is mapped; tensors are views
// of it.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/files.h"
#include "base/watch.h"
#include "formats/dtype.h"
#include "formats/pickle.h"
#include "formats/zip_archive.h"

namespace longshot {

// Element (i, j, ...) stands at storage element offset + i * strides[0] + j * strides[1] + ...; checked to
// lie inside.
struct TorchTensor {
  DType dtype = DType::kF32;
  Shape shape, strides;
  int64_t offset = 0;                  // in elements
  std::span<const std::byte> storage;  // shared by tied tensors

  int64_t size() const { return element_count(shape).value_or(0); }
  bool is_contiguous() const;
};

// True if the file begins as torch.save's containers do. Reads nothing else.
bool looks_like_torch_file(const fs::path& path);

class TorchFile {
 public:
  enum class Container { kZip, kStream };

  // Reads the pickle (at most 64 MiB) and checks every tensor and storage against the file; no tensor data are touched.
  explicit TorchFile(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  Container container() const { return container_; }
  size_t file_bytes() const { return file_.size(); }
  PickleValue root() const { return pickle_->root(); }
  const TorchTensor* tensor(PickleValue value) const;  // null for what is not a tensor

  // Throws where a storage does not have the checksum the archive gives it. Reads the whole file. A stream has none.
  void verify_checksums(const Watch& watch = {}) const;

 private:
  struct Storage {
    DType dtype;
    int64_t elements;
    std::span<const std::byte> bytes;
  };
  using Storages = std::map<std::string_view, Storage>;  // keys lie in the pickle

  std::string name() const { return path().string(); }
  void read_zip();
  void read_stream();
  Storages collect_storages() const;
  void build_tensors(const Storages& storages);
  TorchTensor rebuild(const PickleRecord& call, const Storages& storages) const;

  MappedFile file_;
  Container container_ = Container::kZip;
  StoredEntries entries_;  // of a zip
  std::unique_ptr<Pickle> pickle_;
  std::unordered_map<PickleValue, TorchTensor> tensors_;
};

// Copies the elements row-major, as they are, into out, which has just their bytes.
void copy_elements(const TorchTensor& tensor, std::span<std::byte> out);

// Copies a floating tensor row-major into out, which has tensor.size() elements.
void copy_to_float(const TorchTensor& tensor, std::span<float> out);

// Equal type, shape and bits of every element (NaN equals itself).
bool same_content(const TorchTensor& a, const TorchTensor& b);

}  // namespace longshot
