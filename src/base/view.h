// Views of row-major float matrices. They own nothing and are passed by value.
#pragma once
#include <cassert>
#include <cstdint>
#include <span>

namespace longshot {

template <class T>
struct BasicMat {
  T* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  // distance between rows, in elements; at least cols

  BasicMat() = default;
  BasicMat(T* data_, int64_t rows_, int64_t cols_) : BasicMat(data_, rows_, cols_, cols_) {}
  BasicMat(T* data_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  operator BasicMat<const T>() const { return {data, rows, cols, stride}; }

  T* row(int64_t r) const {
    assert(r >= 0 && r < rows);
    return data + r * stride;
  }
  T& operator()(int64_t r, int64_t c) const { return row(r)[c]; }
  BasicMat rows_from(int64_t first, int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= rows);
    return {data + first * stride, count, cols, stride};
  }
  BasicMat cols_from(int64_t first, int64_t count) const {
    assert(first >= 0 && count >= 0 && first + count <= cols);
    return {data + first, rows, count, stride};
  }
};

using Mat = BasicMat<float>;
using ConstMat = BasicMat<const float>;

// [first, first + count) of a span.
template <class T>
std::span<T> part(std::span<T> all, int64_t first, int64_t count) {
  return all.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

}  // namespace longshot
