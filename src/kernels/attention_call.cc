#include "kernels/attention_call.h"

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

void check(const AttentionProblem& p) {
  require_usage(p.sequences > 0 && p.queries >= 0 && p.keys >= 0 && p.heads > 0 && p.head_dim > 0,
                "attention: {} sequences of {} queries and {} keys, {} heads of dimension {}: sizes must be positive",
                p.sequences, p.queries, p.keys, p.heads, p.head_dim);
  require_usage(p.key_heads >= 0 && (p.key_heads == 0 || p.heads % p.key_heads == 0),
                "attention: {} heads of keys do not divide {} heads of queries", p.key_heads, p.heads);
  require_usage(p.window >= 0, "attention: a window of {} keys", p.window);
  require_usage(p.epsilon >= 0 && p.epsilon < 1, "attention: epsilon {} is not in [0, 1)", p.epsilon);
  const auto ranges = static_cast<size_t>(p.sequences * p.queries);
  for (const auto& keys : {p.first_key, p.last_key}) {
    require_usage(keys.empty() || keys.size() == ranges, "attention: a visible range for {} queries, there are {}",
                  keys.size(), ranges);
  }
  const DistanceBias& bias = p.bias;
  const bool by_query = bias.query_slopes.data != nullptr;
  require_usage(
      bias.kind != DistanceBias::Kind::kLinear || by_query || static_cast<int64_t>(bias.slopes.size()) == p.heads,
      "attention: {} slopes for {} heads", bias.slopes.size(), p.heads);
  const int64_t query = p.first_position.value_or(p.keys - p.queries);
  require_usage(!by_query || (p.causal && bias.query_slopes.cols == p.heads && query >= bias.first &&
                              query + p.queries <= bias.first + bias.query_slopes.rows),
                "attention: slopes of {} heads at positions {} to {} for {} heads at {} to {}, or it is not causal",
                bias.query_slopes.cols, bias.first, bias.first + bias.query_slopes.rows, p.heads, query,
                query + p.queries);
  require_usage(bias.kind != DistanceBias::Kind::kTable ||
                    (bias.table.rows == p.heads && bias.ahead >= 0 && bias.table.cols > bias.ahead),
                "attention: a bias table of {} x {}, {} columns of it ahead, for {} heads", bias.table.rows,
                bias.table.cols, bias.ahead, p.heads);
}

}  // namespace

Attention::Attention(const AttentionProblem& problem) : problem_(problem) {
  check(problem);
  shape_ = {.sequences = problem.sequences,
            .queries = problem.queries,
            .heads = problem.heads,
            .head_dim = problem.head_dim,
            .key_heads = problem.key_heads};
  options_.scale = problem.scale;
  options_.visible = {.causal = problem.causal,
                      .window = problem.window,
                      .first = problem.first_key.empty() ? nullptr : problem.first_key.data(),
                      .last = problem.last_key.empty() ? nullptr : problem.last_key.data(),
                      .stride = problem.queries};
  options_.bias = problem.bias;
  options_.epsilon = problem.epsilon;
  const auto sequences = static_cast<size_t>(problem.sequences);
  query_position_.assign(sequences, problem.first_position.value_or(problem.keys - problem.queries));
  key_position_.assign(sequences, 0);
  lse_.resize(sequences * static_cast<size_t>(problem.heads * problem.queries));
  visited_.resize(sequences * static_cast<size_t>(problem.heads * shape_.query_tiles()));
  memory_ = Workspace([this](Layout& at) {
    store_.layout(at, {.sequences = shape_.sequences,
                       .heads = shape_.stored_heads(),
                       .head_dim = shape_.head_dim,
                       .tokens = std::max<int64_t>(problem_.keys, 1)});
  });
}

void Attention::forward(Context& context, const AttentionInputs& inputs, const Heads& out) {
  append_keys(context, {inputs.k, inputs.v, problem_.keys, key_position_}, {}, store_);
  attention_forward(context, shape_, options_, {inputs.q, query_position_, out, lse_, visited_}, store_);
}

// More than any |i - j| there can be.
int64_t Attention::distances() const {
  const int64_t first = query_position_.front(), last = first + problem_.queries - 1;
  return std::max({last, problem_.keys - 1 - first, int64_t{0}}) + 1;
}

void Attention::backward(Context& context, const AttentionInputs& inputs, const ConstHeads& out,
                         const ConstHeads& d_out, const AttentionInputGradients& gradients) {
  AttentionOptions options = options_;
  const bool slopes = !gradients.d_slopes.empty(), table = gradients.d_table.data != nullptr;
  require_usage(!slopes || (options.bias.kind == DistanceBias::Kind::kLinear && !options.bias.query_slopes.data &&
                            static_cast<int64_t>(gradients.d_slopes.size()) == problem_.heads),
                "attention: a gradient of {} slopes for {} heads, or the bias is not linear with slopes of its own",
                gradients.d_slopes.size(), problem_.heads);
  require_usage(
      !table || (options.bias.kind == DistanceBias::Kind::kTable && gradients.d_table.rows == options.bias.table.rows &&
                 gradients.d_table.cols == options.bias.table.cols),
      "attention: a gradient of {} x {} for a bias table of {} x {}", gradients.d_table.rows, gradients.d_table.cols,
      options.bias.table.rows, options.bias.table.cols);
  options.bias.wants_gradient = slopes || table;
  std::vector<float> by_distance;
  Mat d_bias = gradients.d_table;
  if (slopes) {
    by_distance.resize(static_cast<size_t>(problem_.heads * distances()));
    d_bias = {by_distance.data(), problem_.heads, distances()};
  }
  for (int64_t h = 0; h < d_bias.rows && table; ++h) std::fill_n(d_bias.row(h), d_bias.cols, 0.0f);
  attention_backward(
      context, shape_, options, {inputs.q, inputs.k, inputs.v, problem_.keys, query_position_, out, lse_, visited_},
      {.d_out = d_out, .d_q = gradients.d_q, .d_k = gradients.d_k, .d_v = gradients.d_v, .d_bias = d_bias});
  // b_h(d) = -m_h |d|   =>   dm_h = -sum_d |d| db_h(d)
  for (int64_t h = 0; h < problem_.heads && slopes; ++h) {
    double sum = 0;
    for (int64_t d = 0; d < d_bias.cols; ++d) sum -= static_cast<double>(d) * d_bias(h, d_bias.cols - 1 - d);
    gradients.d_slopes[static_cast<size_t>(h)] = static_cast<float>(sum);
  }
}

}  // namespace longshot
