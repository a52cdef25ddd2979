// All parameters in one block, gradients in another of the same shape, and one table of names. Optimizer, clipping,
// counting and checkpoints are each one loop over it. For running alone, matrices can be stored in fewer bits instead, or stay in
// the file they come from.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/view.h"
#include "base/workspace.h"
#include "kernels/product.h"

namespace longshot {

// Value number `index` of a tensor, from a normal number of its own.
using Initializer = std::function<float(int64_t index, double unit_normal)>;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0, size = 0;  // in the block, in floats
  bool matrix = false;           // of products: weight decay applies. Not norms, biases and position tensors
  Initializer init;
};

using ParameterId = size_t;

// Where two parts of a model use one tensor, what becomes of their gradients: one sum, or each its own until they are added.
enum class SharedGradients { kTogether, kApart };

struct GradientId {
  ParameterId of = 0;
  std::optional<size_t> further{};  // which of those behind the block's first, one for each tensor
};
struct FurtherGradient {
  ParameterId of = 0;
  int64_t offset = 0;  // in the gradients' block
};

class Parameters {
 public:
  // Declares a tensor. All are declared before allocate().
  ParameterId add(std::string name, std::vector<int64_t> shape, bool matrix, Initializer init);
  // The gradient of a further use of a tensor.
  GradientId add_use(ParameterId id, SharedGradients shared);
  void allocate(bool with_gradients, Workspace::Kind kind = Workspace::Kind::kMemory);
  // A value depends on the seed, the tensor's name and the place in it: what two models have in common starts equal.
  void initialize(Context& context, uint64_t seed);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  int64_t count() const;      // parameters, without padding
  std::span<float> values();  // Error when matrices are stored: their floats are gone
  // Empty without gradients. Like values(), and then those of further uses that are kept apart.
  std::span<float> grads() { return grads_; }
  const std::vector<FurtherGradient>& further_gradients() const { return further_; }
  int64_t gradient_floats() const { return size_ + further_size_; }
  int64_t end() const { return size_; }  // offset of the tensor that is declared next
  // From now on gradients are summed there: gradient_floats() numbers.
  void sum_gradients_in(std::span<float> block) { grads_ = block; }
  // What further uses have summed joins the rest, in [begin, end) of the block, and is 0 again.
  void join_gradients(Context& context, int64_t begin, int64_t end);

  std::span<float> value(ParameterId id) { return slice(values_, id); }
  std::span<float> grad(ParameterId id) { return grads_.empty() ? std::span<float>() : slice(grads_, id); }
  Mat value_mat(ParameterId id) { return as_mat(value(id), id); }
  Mat grad_mat(ParameterId id) { return as_mat(grad(id), id); }
  Mat grad_mat(GradientId id) {
    if (!id.further) return grad_mat(id.of);
    const auto offset = static_cast<size_t>(further_[*id.further].offset);
    return as_mat(grads_.subspan(offset, static_cast<size_t>(tensors_[id.of].size)), id.of);
  }

  // A matrix as products see it, however it is stored.
  Weight weight(ParameterId id) const;
  // A matrix that stays where its rows of 16 bits lie, before begin_storing(); `file` is what must live as long.
  void map(ParameterId id, WeightType type, std::span<const std::byte> rows, std::shared_ptr<const void> file);
  // From now on all other matrices are stored in this type. store() follows for each tensor when its values are in place, and gives the
  // memory of a matrix's floats back. Error where there are gradients, or where a number has no finite form in the type.
  void begin_storing(WeightType type);
  void store(ParameterId id);
  void store_all(WeightType type);
  std::optional<WeightType> stored() const { return stored_; }
  size_t bytes() const;  // of values, however they are stored, without those that are mapped
  size_t mapped_bytes() const;

 private:
  std::span<float> slice(std::span<float> block, ParameterId id) const {
    assert(panels_.empty() || !panels_[id].data);
    return block.subspan(static_cast<size_t>(tensors_[id].offset), static_cast<size_t>(tensors_[id].size));
  }
  Mat as_mat(std::span<float> data, ParameterId id) const {
    const auto& shape = tensors_[id].shape;
    return {data.data(), shape[0], shape.size() > 1 ? shape[1] : 1};
  }
  std::vector<Tensor> tensors_;
  int64_t size_ = 0;  // with padding
  std::vector<FurtherGradient> further_;
  int64_t further_size_ = 0;
  Workspace memory_;
  std::span<float> values_, grads_;
  std::optional<WeightType> stored_;
  std::vector<std::span<std::byte>> places_;  // of stored matrices
  std::vector<Panels> panels_;                // with data from store() or map() on
  std::vector<std::shared_ptr<const void>> files_;
  Workspace stored_memory_;
};

Initializer constant(float value);
Initializer alternating(float value);  // value, -value, value, ..
Initializer gaussian(double deviation);

}  // namespace longshot
