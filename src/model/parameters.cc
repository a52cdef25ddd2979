#include "model/parameters.h"

#include "base/rng.h"

namespace longshot {

ParameterId Parameters::add(std::string name, std::vector<int64_t> shape, bool decay, Initializer init) {
  Tensor t{std::move(name), std::move(shape), size_, 1, decay, std::move(init)};
  for (const int64_t n : t.shape) t.size *= n;
  size_ += (t.size + 15) / 16 * 16;  // every tensor begins on a cache line
  tensors_.push_back(std::move(t));
  return tensors_.size() - 1;
}

void Parameters::allocate(bool with_gradients, Workspace::Kind kind) {
  const auto layout = [&](Layout& at) {
    values_ = at.array<float>(size_);
    grads_ = at.array<float>(with_gradients ? size_ : 0);
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
