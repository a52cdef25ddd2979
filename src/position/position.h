// How a model learns the order of its tokens. A method acts at up to three points:
//
//   1. on the input embeddings:      x_p += e_p                          (sinusoidal, learned)
//   2. on queries and keys:          q_p, k_p are rotated by angles p*f  (rotary)
//   3. on the scores:                s_ij = q_i . k_j / sqrt(D) + b_h(i - j)   (alibi, t5)
//
// One file per method in this folder; the folder is the registry. A file x.cc defines `extern const PositionMethod position_x`,
// and every test that walks the registry covers it from then on. x.h is for a method whose options other programs' files have
// words for.
//
// Letters: H heads, D head dimension, C = H D width, p position in the sequence, d = i - j >= 0 distance.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/view.h"
#include "kernels/attention.h"

namespace longshot {

// A tensor a method learns. Values and gradients live in the model's parameter block.
struct PositionTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::function<float(int64_t index, double unit_normal)> init;  // flat index and a draw from N(0, 1)
};

// Rows of a table by position, made once they are asked for. Only the last stretch is kept.
class PositionRows {
 public:
  explicit PositionRows(int64_t width = 0) : width_(width) {}
  // Rows first .. last - 1 are there afterwards; make(p, row) fills one.
  template <class F>
  void cover(int64_t first, int64_t last, F&& make) {
    if (first < first_ || first > end() || last - first_ > std::max(kKept, 2 * (last - first))) {
      first_ = first;
      values_.clear();
    }
    for (int64_t p = end(); p < last; ++p) {
      values_.resize(values_.size() + static_cast<size_t>(width_));
      make(p, values_.data() + (p - first_) * width_);
    }
  }
  const float* row(int64_t position) const { return values_.data() + (position - first_) * width_; }
  int64_t first() const { return first_; }
  ConstMat rows() const { return {values_.data(), end() - first_, width_}; }

 private:
  static constexpr int64_t kKept = 1 << 16;
  int64_t end() const { return first_ + (width_ > 0 ? static_cast<int64_t>(values_.size()) / width_ : 0); }
  int64_t width_, first_ = 0;
  std::vector<float> values_;
};

class Position {
 public:
  virtual ~Position() = default;

  // The longest sequence the method is defined for.
  virtual int64_t max_length() const { return std::numeric_limits<int64_t>::max(); }

  virtual std::vector<PositionTensor> tensors() const { return {}; }
  // Where tensors() live now: one span per tensor, in that order. Called before anything below.
  using Tensors = std::span<const std::span<float>>;
  virtual void bind(Tensors values) { (void)values; }
  // Makes tables for positions first .. last - 1 and distances below last, from the present parameter values. Called
  // before each pass. They need no more memory than the pass asks for, however far a stream has come.
  virtual void prepare(int64_t first, int64_t last) { (void)first, (void)last; }

  // 1. x[r] += e(first + r), for methods that say so
  virtual bool adds_to_input() const { return false; }
  virtual void add_to_input(Mat x, int64_t first) const { (void)x, (void)first; }
  // Gradients of tensors() are added to `grads`.
  virtual void add_to_input_backward(ConstMat dx, int64_t first, Tensors grads) const {
    (void)dx, (void)first, (void)grads;
  }
  // 2.
  virtual Rotation rotation() const { return {}; }
  // 3. `d_bias` is [H, n] in the layout of DistanceBias::table.
  virtual DistanceBias bias(int64_t layer) const { return (void)layer, DistanceBias{}; }
  virtual void bias_backward(int64_t layer, ConstMat d_bias, Tensors grads) const {
    (void)layer, (void)d_bias, (void)grads;
  }
};

// What a method is told of the model.
struct PositionShape {
  int64_t layers = 0, heads = 0, head_dim = 0;
  int64_t train_length = 0;
  int64_t width() const { return heads * head_dim; }
};

// The options of one method: its own typed fields. Derive from MethodOptions.
class PositionOptions {
 public:
  virtual ~PositionOptions() = default;
  // Declares them; names begin with the method's.
  virtual void fields(Options& o) { (void)o; }
  // Declares those of running a trained model, with names of the same kind. No training knows them, and no checkpoint.
  virtual void running_fields(Options& o) { (void)o; }
  // The method at work. Error(kUsage) names the option that does not fit.
  virtual std::unique_ptr<Position> make(const PositionShape& shape) const = 0;
  virtual std::unique_ptr<PositionOptions> clone() const = 0;
  virtual void assign(const PositionOptions& other) = 0;  // of the same method
};

template <class Self>
class MethodOptions : public PositionOptions {
 public:
  static std::unique_ptr<PositionOptions> initial() { return std::make_unique<Self>(); }
  std::unique_ptr<PositionOptions> clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
  void assign(const PositionOptions& other) override { static_cast<Self&>(*this) = static_cast<const Self&>(other); }
};

struct PositionMethod {
  std::string name;
  std::string summary;  // one line for `longshot positions`
  std::unique_ptr<PositionOptions> (*options)();
};

std::vector<const PositionMethod*> position_methods();           // in alphabetical order
const PositionMethod& position_method(const std::string& name);  // unknown: Error(kUsage) that names the nearest

// The options of all methods, as a value. Assigning keeps what fields() has declared.
class PositionSettings {
 public:
  PositionSettings();
  PositionSettings(const PositionSettings& other);
  PositionSettings& operator=(const PositionSettings& other);
  void fields(Options& o);
  void running_fields(Options& o);
  // Those of one method, by their type.
  template <class T>
  T& of() {
    for (const auto& options : all_) {
      if (auto* const own = dynamic_cast<T*>(options.get())) return *own;
    }
    std::abort();  // the registry has every method
  }
  template <class T>
  const T& of() const {
    return const_cast<PositionSettings*>(this)->of<T>();
  }
  // Takes the options of running from `other`. Error(kUsage) where one is set that belongs to another method than `method`.
  void run_as(const PositionSettings& other, const std::string& method);
  // Those of them that are set, as typed: "alibi-scaling ntk, alibi-scaling-factor 4"; "" where none is.
  std::string running_text() const;
  std::unique_ptr<Position> make(const std::string& method, const PositionShape& shape) const;

 private:
  std::vector<std::unique_ptr<PositionOptions>> all_;  // in the order of position_methods()
};

}  // namespace longshot
