#include "formats/gguf_tensors.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

SourceTensor source_tensor(const GgufTensor& tensor, const MappedFile& file) {
  if (const auto plain = plain_dtype(tensor.type))
    return source_tensor(NamedTensor{std::string(tensor.name), *plain, tensor.shape, tensor.bytes}, &file);
  SourceTensor source{.name = std::string(tensor.name), .dtype = DType::kF32, .shape = tensor.shape, .read = {}};
  const auto width = static_cast<size_t>(source.row_elements());
  const GgmlLayout& layout = ggml_layout(tensor.type);
  source.read = [type = tensor.type, bytes = tensor.bytes, stored = width / layout.elements * layout.bytes](
                    int64_t first, int64_t count, std::span<std::byte> out) {
    assert(reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0);
    const std::span floats(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
    read_blocks(type, bytes.subspan(static_cast<size_t>(first) * stored, static_cast<size_t>(count) * stored), floats);
  };
  return source;
}

GgmlType ggml_type(DType type) {
  for (const GgmlType plain : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    if (plain_dtype(plain) == type) return plain;
  }
  fail("numbers of type {} are not written to GGUF files", dtype_name(type));
}

bool stays_float(const MadeTensor& tensor) { return tensor.shape.size() == 1 || tensor.name == "position_embd.weight"; }

// Whole rows of floats in, blocks out.
class BlockSink {
 public:
  BlockSink(const GgufOutput& to, const GgufSink& sink) : to_(to), layout_(ggml_layout(to.type)), sink_(sink) {}

  void take(std::span<const std::byte> bytes) {
    assert(bytes.size() % (layout_.elements * sizeof(float)) == 0);
    floats_.resize(bytes.size() / sizeof(float));
    std::memcpy(floats_.data(), bytes.data(), bytes.size());
    packed_.resize(floats_.size() / layout_.elements * layout_.bytes);
    write_blocks(to_.type, floats_, packed_);
    for (size_t at = 0; at < packed_.size(); at += layout_.bytes) {
      uint16_t scale = 0;
      std::memcpy(&scale, &packed_[at], sizeof scale);
      require(std::isfinite(half_to_float(scale)), "tensor '{}' holds a number that is too large for {}", to_.name,
              layout_.name);
    }
    sink_(packed_);
  }

 private:
  const GgufOutput& to_;
  const GgmlLayout& layout_;
  const GgufSink& sink_;
  std::vector<float> floats_;
  std::vector<std::byte> packed_;
};

}  // namespace

SourceTensors open_gguf_tensors(const std::shared_ptr<const Gguf>& file) {
  SourceTensors tensors(file->path().string());
  for (const GgufTensor& t : file->tensors()) {
    if (is_readable(t.type)) tensors.add(source_tensor(t, file->file()));
  }
  tensors.keep_open(file);
  return tensors;
}

std::vector<GgufOutput> gguf_outputs(std::vector<MadeTensor>& tensors, std::optional<GgmlType> type) {
  std::vector<GgufOutput> outputs;
  for (MadeTensor& t : tensors) {
    const GgmlType wanted = stays_float(t) ? GgmlType::kF32 : type.value_or(ggml_type(t.dtype));
    const GgmlLayout& layout = ggml_layout(wanted);
    require_usage(static_cast<uint64_t>(t.shape.back()) % layout.elements == 0,
                  "--type {}: rows of '{}' have {} elements, and no whole blocks of {}", layout.name, t.name,
                  t.shape.back(), layout.elements);
    t.dtype = plain_dtype(wanted).value_or(DType::kF32);
    outputs.push_back({t.name, wanted, t.shape});
  }
  return outputs;
}

void write_gguf_tensors(const fs::path& path, const GgufKeys& keys, std::span<const MadeTensor> tensors,
                        std::span<const GgufOutput> outputs, const Watch& watch) {
  double all = 0, done = 0;
  for (const MadeTensor& t : tensors) all += static_cast<double>(element_count(t.shape).value_or(0));
  write_gguf(path, keys, outputs, [&](size_t index, const GgufSink& sink) {
    const bool plain = plain_dtype(outputs[index].type).has_value();
    BlockSink blocks(outputs[index], sink);
    tensors[index].give([&](std::span<const std::byte> bytes) {
      plain ? sink(bytes) : blocks.take(bytes);
      done += static_cast<double>(bytes.size()) / static_cast<double>(dtype_size(tensors[index].dtype));
      watch.at(done / all);
    });
  });
}

}  // namespace longshot
