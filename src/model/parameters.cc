#include "model/parameters.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/update.h"

namespace longshot {

ParameterId Parameters::add(std::string name, std::vector<int64_t> shape, bool matrix, Initializer init) {
  Tensor t{std::move(name), std::move(shape), size_, 1, matrix, std::move(init)};
  for (const int64_t n : t.shape) t.size *= n;
  size_ += (t.size + 15) / 16 * 16;  // every tensor begins on a cache line
  tensors_.push_back(std::move(t));
  return tensors_.size() - 1;
}

GradientId Parameters::add_use(ParameterId id, SharedGradients shared) {
  if (shared == SharedGradients::kTogether) return {.of = id};
  further_.push_back({.of = id});
  return {.of = id, .further = further_.size() - 1};
}

void Parameters::allocate(bool with_gradients, Workspace::Kind kind) {
  for (FurtherGradient& g : further_) {
    g.offset = gradient_floats();
    further_size_ += (tensors_[g.of].size + 15) / 16 * 16;
  }
  const auto layout = [&](Layout& at) {
    values_ = at.array<float>(size_);
    grads_ = at.array<float>(with_gradients ? gradient_floats() : 0);
  };
  memory_ = Workspace(layout, kind);
}

void Parameters::initialize(Context& context, uint64_t seed) {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const Tensor& tensor = tensors_[t];
    const uint64_t key = name_key(tensor.name);
    float* out = value(t).data();
    context.ranges(tensor.size, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = tensor.init(i, normal(seed, Stream::kInit, key, static_cast<uint64_t>(i)));
      }
    });
  }
}

void Parameters::join_gradients(Context& context, int64_t begin, int64_t end) {
  for (const FurtherGradient& g : further_) {
    const Tensor& t = tensors_[g.of];
    const int64_t first = std::max(begin, t.offset), last = std::min(end, t.offset + t.size);
    if (first >= last) continue;
    float *from = grads_.data() + g.offset + (first - t.offset), *to = grads_.data() + first;
    context.ranges(last - first, 4096, [&](int64_t b, int64_t e) { move_floats(from + b, to + b, e - b); });
  }
}

std::span<float> Parameters::values() {
  require(!stored_, "the parameters are stored as {} for running alone: their floats are gone",
          name_of(kWeightTypes, stored_.value_or(WeightType::kF32)));
  return values_;
}

Weight Parameters::weight(ParameterId id) const {
  if (!panels_.empty() && panels_[id].data) return {.stored = panels_[id]};
  return {.values = as_mat(slice(values_, id), id)};
}

void Parameters::map(ParameterId id, WeightType type, std::span<const std::byte> rows,
                     std::shared_ptr<const void> file) {
  const Tensor& t = tensors_[id];
  assert(t.matrix && is_mapped(type) && !stored_ && grads_.empty());
  assert(rows.size() == static_cast<size_t>(t.size) * sizeof(uint16_t));
  panels_.resize(tensors_.size());
  panels_[id] = {type, t.shape[0], t.shape[1], rows.data()};
  if (files_.empty() || files_.back() != file) files_.push_back(std::move(file));
}

void Parameters::begin_storing(WeightType type) {
  require(!stored_ && grads_.empty(), "parameters that are trained, or stored already, cannot be stored for running");
  stored_ = type;
  places_.resize(tensors_.size());
  panels_.resize(tensors_.size());
  stored_memory_ = Workspace([&](Layout& at) {
    for (size_t id = 0; id < tensors_.size(); ++id) {
      const Tensor& t = tensors_[id];
      if (t.matrix && !panels_[id].data)
        places_[id] = at.array<std::byte>(static_cast<int64_t>(stored_bytes(type, t.shape[0], t.shape[1])));
    }
  });
}

void Parameters::store(ParameterId id) {
  const Tensor& t = tensors_[id];
  if (!t.matrix || panels_[id].data) return;
  assert(stored_);
  const WeightType type = stored_.value_or(WeightType::kF32);
  const std::span<float> floats = value(id);
  require(store_panels(as_mat(floats, id), type, places_[id].data()),
          "tensor '{}' has numbers that are not finite in {}; --weights f32 takes them as they are", t.name,
          name_of(kWeightTypes, type));
  panels_[id] = {type, t.shape[0], t.shape[1], places_[id].data()};
  Workspace::release(std::as_writable_bytes(floats));
}

void Parameters::store_all(WeightType type) {
  begin_storing(type);
  for (size_t id = 0; id < tensors_.size(); ++id) store(id);
}

size_t Parameters::bytes() const {
  size_t sum = stored_memory_.bytes();
  for (const Tensor& t : tensors_) sum += stored_ && t.matrix ? 0 : static_cast<size_t>(t.size) * sizeof(float);
  return sum;
}

size_t Parameters::mapped_bytes() const {
  size_t sum = 0;
  for (const Panels& p : panels_) sum += p.data && is_mapped(p.type) ? stored_bytes(p.type, p.out, p.in) : 0;
  return sum;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Tensor& t : tensors_) n += t.size;
  return n;
}

Initializer constant(float value) {
  return [value](int64_t, double) { return value; };
}

Initializer alternating(float value) {
  return [value](int64_t index, double) { return index % 2 == 0 ? value : -value; };
}

Initializer gaussian(double deviation) {
  return [deviation](int64_t, double z) { return static_cast<float>(deviation * z); };
}

}  // namespace longshot
