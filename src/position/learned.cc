// Learned absolute positions: row p of a trained table is added to the embedding at position p. The table ends at
// the training length, and so does the model.
#include "base/error.h"
#include "position/position.h"

namespace longshot {
namespace {

class Learned : public Position {
 public:
  explicit Learned(const PositionShape& shape) : length_(shape.train_length), width_(shape.width()) {}

  int64_t max_length() const override { return length_; }

  std::vector<PositionTensor> tensors() const override {
    return {{"embedding", {length_, width_}, [](int64_t, double z) { return static_cast<float>(0.02 * z); }}};
  }

  void bind(Tensors values) override { table_ = values[0]; }

  bool adds_to_input() const override { return true; }
  // x_p += E_p
  void add_to_input(Mat x, int64_t first) const override {
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* e = table_.data() + (first + r) * width_;
      for (int64_t c = 0; c < width_; ++c) x(r, c) += e[c];
    }
  }

  // dE_p += dx_p
  void add_to_input_backward(ConstMat dx, int64_t first, Tensors grads) const override {
    for (int64_t r = 0; r < dx.rows; ++r) {
      float* de = grads[0].data() + (first + r) * width_;
      for (int64_t c = 0; c < width_; ++c) de[c] += dx(r, c);
    }
  }

 private:
  int64_t length_, width_;
  std::span<const float> table_;  // [length, C]
};

struct LearnedOptions : MethodOptions<LearnedOptions> {
  std::unique_ptr<Position> make(const PositionShape& shape) const override { return std::make_unique<Learned>(shape); }
};

}  // namespace

extern const PositionMethod position_learned{
    .name = "learned",
    .summary = "a trained vector per position; defined up to the training length only",
    .options = LearnedOptions::initial,
};

}  // namespace longshot
