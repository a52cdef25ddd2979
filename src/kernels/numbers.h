// Numbers as they lie in memory: floats, or bf16, the upper halves of floats. Views like those of base/view.h, for what may be either;
// a view of floats becomes one by itself.
#pragma once
#include <concepts>

#include "base/context.h"
#include "base/view.h"
#include "base/workspace.h"

namespace longshot {

// Where numbers begin: one of the two.
template <class F, class H>
struct BasicNumbers {
  F* floats = nullptr;
  H* halves = nullptr;

  BasicNumbers() = default;
  BasicNumbers(F* floats_) : floats(floats_) {}
  BasicNumbers(H* halves_) : halves(halves_) {}
  BasicNumbers(F* floats_, H* halves_) : floats(floats_), halves(halves_) {}
  operator BasicNumbers<const F, const H>() const { return {floats, halves}; }
  explicit operator bool() const { return floats || halves; }
  BasicNumbers operator+(int64_t n) const { return {floats ? floats + n : nullptr, halves ? halves + n : nullptr}; }
};
using Numbers = BasicNumbers<float, uint16_t>;
using ConstNumbers = BasicNumbers<const float, const uint16_t>;

// A row-major matrix of them.
template <class F, class H>
struct BasicNumberMat {
  BasicNumbers<F, H> data;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // distance between rows, in numbers; at least cols

  BasicNumberMat() = default;
  BasicNumberMat(BasicNumbers<F, H> data_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  BasicNumberMat(BasicNumbers<F, H> data_, int64_t rows_, int64_t cols_) : BasicNumberMat(data_, rows_, cols_, cols_) {}
  template <class T>
    requires std::convertible_to<T*, F*>
  BasicNumberMat(const BasicMat<T>& m) : BasicNumberMat(m.data, m.rows, m.cols, m.stride) {}
  operator BasicNumberMat<const F, const H>() const { return {data, rows, cols, stride}; }

  bool is_bf16() const { return data.halves != nullptr; }
  // REQUIRES: !is_bf16().
  BasicMat<F> floats() const {
    assert(!is_bf16());
    return {data.floats, rows, cols, stride};
  }
  BasicNumbers<F, H> row(int64_t r) const {
    assert(r >= 0 && r < rows);
    return data + r * stride;
  }
  BasicNumberMat rows_from(int64_t first, int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows);
    return {data + first * stride, count, cols, stride};
  }
  BasicNumberMat cols_from(int64_t first, int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= cols);
    return {data + first, rows, count, stride};
  }
};
using NumberMat = BasicNumberMat<float, uint16_t>;
using ConstNumberMat = BasicNumberMat<const float, const uint16_t>;

inline NumberMat number_mat(Layout& at, int64_t rows, int64_t cols, Precision stored) {
  if (stored == Precision::kF32) return at.mat(rows, cols);
  return {at.array<uint16_t>(rows * cols).data(), rows, cols};
}

// The numbers themselves where they are floats, else `room` for as many.
inline Mat as_floats(const NumberMat& m, float* room) { return m.is_bf16() ? Mat(room, m.rows, m.cols) : m.floats(); }

}  // namespace longshot
