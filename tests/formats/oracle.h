// What another program computed from a model, in a safetensors file, and the same of ours.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "context.h"
#include "formats/safetensors.h"
#include "model/inference.h"

namespace longshot {

inline std::vector<float> floats(const Safetensors& file, const std::string& name) {
  const NamedTensor& tensor = file.at(name);
  std::vector<float> values(static_cast<size_t>(*element_count(tensor.shape)));
  file.read(name, values);
  return values;
}

inline std::vector<int32_t> ids(const Safetensors& file, const std::string& name) {
  const NamedTensor& tensor = file.at(name);
  std::vector<int32_t> values(static_cast<size_t>(*element_count(tensor.shape)));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// ln p [T, V] of the next id behind each.
inline std::vector<float> log_probabilities(Transformer& model, std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  Inference inference(test_context(), model, {.sequences = 1, .tokens = length});
  std::vector<float> out(tokens.size() * static_cast<size_t>(model.config().vocab));
  inference.log_probabilities({.inputs = tokens, .length = length, .first_key = {}, .watch = {}}, 0,
                              {out.data(), length, model.config().vocab});
  return out;
}

inline std::vector<int32_t> greedy(Transformer& model, std::vector<int32_t> tokens, size_t count) {
  const size_t before = tokens.size();
  for (size_t i = 0; i < count; ++i) {
    const std::vector<float> p = log_probabilities(model, tokens);
    const auto last = p.end() - model.config().vocab;
    tokens.push_back(static_cast<int32_t>(std::max_element(last, p.end()) - last));
  }
  return {tokens.begin() + static_cast<int64_t>(before), tokens.end()};
}

// Infinite where the sizes differ or a number is none.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::max(most, std::isnan(difference) ? HUGE_VAL : difference);
  }
  return most;
}

}  // namespace longshot
