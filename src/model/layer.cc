#include "model/layer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/gather.h"

namespace longshot {
namespace {

int64_t hidden_width(const ModelConfig& config) { return config.ffn_dim() * activation_inputs(config.activation); }

std::string layer_name(int64_t index, const char* part) { return fmt::format("layers.{}.{}", index, part); }

}  // namespace

void LayerActivations::layout(Layout& at, const ModelConfig& config, const AttentionShape& shape, Precision stored) {
  const int64_t rows = shape.sequences * shape.queries, width = config.dim;
  const auto mat = [&](int64_t cols) { return number_mat(at, rows, cols, stored); };
  if (stored == Precision::kBf16) kept_input = mat(width);
  qkv = mat(config.qkv_dim());
  mixed = mat(width);
  lse = at.array<float>(shape.sequences * shape.heads * shape.queries);
  visited = at.array<VisitedTiles>(shape.sequences * shape.heads * shape.query_tiles());
  middle = mat(width);
  hidden = mat(hidden_width(config));
  if (config.norm_position == NormPosition::kPost) {
    middle_sum = mat(width);
    output_sum = mat(width);
  }
}

void LayerScratch::layout(Layout& at, const ModelConfig& config, const AttentionShape& shape, Needs needs) {
  const int64_t rows = shape.sequences * shape.queries, width = config.dim;
  normed = number_mat(at, rows, width, needs.stored);
  if (needs.stored == Precision::kF32) {
    branch = at.mat(rows, width);
    active = at.mat(rows, config.ffn_dim());
  }
  stats = {at.array<float>(rows), at.array<float>(rows)};
  position = at.array<int64_t>(shape.sequences);
  counts = at.array<int64_t>(shape.sequences);
  const int64_t queries = shape.sequences * shape.heads * shape.queries;
  if (needs.forgets) q_norm = at.array<float>(queries);
  if (needs.sinks) {
    sinks = {heads_of(at.mat(rows, width), shape.queries, shape.head_dim), at.array<float>(queries)};
    sink_tiles = at.array<VisitedTiles>(shape.sequences * shape.heads * shape.query_tiles());
    sink_last = at.array<int32_t>(rows);
  }
  if (!needs.training) {
    residual = at.mat(rows, width);
    return;
  }
  d_branch = at.mat(rows, width);
  needs.stored == Precision::kF32 ? layout_backward(at, config, rows) : layout_bf16(at, config, rows);
  if (needs.bias_columns > 0) d_bias = at.mat(needs.groups * shape.heads, needs.bias_columns);
}

void LayerScratch::layout_backward(Layout& at, const ModelConfig& config, int64_t rows) {
  d_mixed = at.mat(rows, config.dim);
  d_hidden = at.mat(rows, hidden_width(config));
  d_active = activation_inputs(config.activation) > 1 ? at.mat(rows, config.ffn_dim()) : d_hidden.floats();
  d_qkv = at.mat(rows, config.qkv_dim());
}

// Floats are products' results, each used up before the next; in a parallel block d_mixed waits for the other branch. Of bf16,
// `active` is used up when d_hidden is made, and that when d_qkv is.
void LayerScratch::layout_bf16(Layout& at, const ModelConfig& config, int64_t rows) {
  const int64_t widest = std::max(config.qkv_dim(), hidden_width(config));
  wide = at.array<float>(rows * widest).data();
  branch = Mat(wide, rows, config.dim);
  d_active = Mat(wide, rows, config.ffn_dim());
  d_mixed = config.parallel_residual ? at.mat(rows, config.dim) : branch;
  uint16_t* halves = at.array<uint16_t>(rows * widest).data();
  active = NumberMat(halves, rows, config.ffn_dim());
  d_hidden = NumberMat(halves, rows, hidden_width(config));
  d_qkv = NumberMat(halves, rows, config.qkv_dim());
}

namespace {

template <class M>
M cut(M m, int64_t rows) {
  return m.data ? m.rows_from(0, rows) : m;
}

}  // namespace

LayerActivations LayerActivations::first_rows(int64_t rows) const {
  LayerActivations a = *this;
  for (NumberMat* m : {&a.kept_input, &a.qkv, &a.mixed, &a.middle_sum, &a.middle, &a.hidden, &a.output_sum}) {
    *m = cut(*m, rows);
  }
  a.input = cut(a.input, rows), a.output = cut(a.output, rows);
  return a;
}

LayerScratch LayerScratch::first_rows(int64_t rows) const {
  LayerScratch s = *this;
  for (Mat* m : {&s.branch, &s.d_branch, &s.d_mixed, &s.d_active}) *m = cut(*m, rows);
  for (NumberMat* m : {&s.normed, &s.active, &s.d_hidden, &s.d_qkv}) *m = cut(*m, rows);
  return s;
}

Layer::Layer(const ModelConfig& c, Parameters& p, int64_t i)
    : config_(c),
      pre_norm_(c.norm_position == NormPosition::kPre),
      attention_norm_(p, c, layer_name(i, "attention_norm")),
      qkv_(p, layer_name(i, "attention.qkv"), {c.qkv_dim(), c.dim}, c.bias),
      out_(p, layer_name(i, "attention.out"), {c.dim, c.dim}, c.bias,
           1 / std::sqrt(2.0 * static_cast<double>(c.layers))),
      ffn_norm_(p, c, layer_name(i, "ffn_norm")),
      ffn_in_(p, layer_name(i, "ffn.in"), {hidden_width(c), c.dim}, c.bias),
      ffn_out_(p, layer_name(i, "ffn.out"), {c.dim, c.ffn_dim()}, c.bias,
               1 / std::sqrt(2.0 * static_cast<double>(c.layers))) {}

Dropout Layer::dropout(const LayerPass& pass, Place place) const {
  if (!pass.training) return {};
  const double rate = place == Place::kActivation ? config_.activation_dropout : config_.dropout;
  return {.rate = static_cast<float>(rate),
          .key = mix64(pass.dropout_key ^ static_cast<uint64_t>(place)),
          .first_row = pass.first_sequence * pass.shape.queries};
}

AttentionOptions Layer::attention_options(const LayerPass& pass) const {
  AttentionOptions options = pass.attention;
  options.dropout = pass.training ? static_cast<float>(config_.attention_dropout) : 0.0f;
  options.dropout_key = mix64(pass.dropout_key ^ static_cast<uint64_t>(Place::kAttention));
  options.dropout_heads = pass.first_sequence * pass.shape.heads;
  return options;
}

// What a branch works on: the normalised input, or the input itself.
ConstNumberMat Layer::branch_input(Context& context, const NormLayer& norm, ConstNumberMat x, LayerScratch& s) const {
  if (!pre_norm_) return x;
  const NumberMat y = s.normed.rows_from(0, x.rows);
  norm.forward(context, x, y, s.stats);
  return y;
}

// dx += gradient of branch_input, from s.branch.
void Layer::branch_input_backward(Context& context, const LayerPass& pass, const BranchInput& b, LayerScratch& s,
                                  Mat dx) const {
  if (pre_norm_) return b.norm.backward(context, s.branch, {b.x, s.stats}, dx, pass.groups);
  add_residual(context, dx, {.y = s.branch, .drop = {}}, dx);
}

// pre: out = x + branch;   post: sum = x + branch, out = norm(sum)
void Layer::join(Context& context, const NormLayer& norm, ConstMat x, const Branch& branch, const Joined& to) const {
  add_residual(context, x, branch, pre_norm_ ? to.out : to.sum);
  if (!pre_norm_) {
    norm.forward(context, to.sum, to.out, to.stats);
    keep(context, to.sum, to.kept_sum);
  }
  keep(context, to.out, to.kept_out);
}

// On entry dx is the gradient of out. On return it is the gradient of x through the residual connection alone, and
// the result is the gradient of the branch's y.
ConstMat Layer::join_backward(Context& context, const LayerPass& pass, const JoinedBranch& b, LayerScratch& s,
                              Mat dx) const {
  if (!pre_norm_) {
    b.norm.forward(context, b.sum, s.normed, s.stats);
    clear(s.d_branch);
    b.norm.backward(context, dx, {b.sum, s.stats}, s.d_branch, pass.groups);
    drop_rows(context, s.d_branch, {}, dx);
  }
  if (b.drop.rate == 0) return dx;
  drop_rows(context, dx, b.drop, s.d_branch);
  return s.d_branch;
}

NumberMat Layer::qkv_part(NumberMat qkv, int64_t i) const {
  const int64_t dim = config_.dim, keys = config_.key_dim();
  return i == 0 ? qkv.cols_from(0, dim) : qkv.cols_from(dim + (i - 1) * keys, keys);
}

// Context-only tokens need no query; where those cannot be told from keys, they get one.
void Layer::project_qkv(Context& context, const LayerPass& pass, ConstNumberMat x, const LayerActivations& a,
                        LayerScratch& s) const {
  const int64_t dim = config_.dim, keys_and_values = 2 * config_.key_dim();
  const Mat qkv = as_floats(a.qkv, s.wide);
  if (pass.skip == 0 || !qkv_.weight().can_begin_at(dim)) {
    qkv_.forward(context, x, qkv);
  } else {
    product(context, x, qkv_.weight().outputs(dim, keys_and_values), qkv.cols_from(dim, keys_and_values));
    for (int64_t b = 0; b < pass.shape.sequences && pass.wanted() > 0; ++b) {
      const int64_t first = b * pass.step + pass.skip;
      product(context, x.rows_from(first, pass.wanted()), qkv_.weight().outputs(0, dim),
              qkv.rows_from(first, pass.wanted()).cols_from(0, dim));
    }
  }
  const bool clips = config_.clip_qkv > 0;
  if (clips) {
    add_bias(context, qkv, qkv_.bias(), qkv);
    clip(context, qkv, static_cast<float>(config_.clip_qkv));
  }
  add_bias(context, qkv, clips ? nullptr : qkv_.bias(), a.qkv);
}

// a.mixed[B W, C], a.lse and a.visited from a.qkv; the new keys and values go to the store.
void Layer::attend(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const {
  AttentionOptions options = attention_options(pass);
  const auto part = [&](int64_t i) { return heads_of(qkv_part(a.qkv, i), pass.step, pass.shape.head_dim); };
  if (pass.forgetting) pass.forgetting->make_room(*pass.store, pass.position, pass.shape.queries);
  append_keys(context, {part(1), part(2), pass.shape.queries, pass.position}, options.rotation, *pass.store);
  AttentionShape wanted = pass.shape;
  wanted.queries = pass.wanted();
  ConstNumberHeads q = part(0);
  q.data = q.data + pass.skip * q.token;
  if (options.visible.first) options.visible.first += pass.skip;
  for (size_t b = 0; b < pass.position.size(); ++b) s.position[b] = pass.position[b] + pass.skip;
  const AttentionQueries queries{.q = q,
                                 .position = s.position,
                                 .out = heads_of(a.mixed, wanted.queries, wanted.head_dim),
                                 .lse = a.lse,
                                 .visited = a.visited,
                                 .q_norm = pass.forgetting ? s.q_norm : std::span<float>{}};
  attention_forward(context, wanted, options, queries, *pass.store);
  if (pass.forgetting) certify(pass, queries, s);
  if (!pass.sinks) return;
  store_sinks(context, pass, part(1), part(2));
  attend_sinks(context, pass, queries, s);
}

void Layer::certify(const LayerPass& pass, const AttentionQueries& queries, LayerScratch& s) {
  for (size_t b = 0; b < pass.position.size(); ++b) {
    const int64_t count = pass.counts.empty() ? pass.shape.queries : pass.counts[b];
    s.counts[b] = std::max<int64_t>(count - pass.skip, 0);
  }
  pass.forgetting->certify({queries.q_norm, queries.lse, pass.wanted(), queries.position, s.counts});
}

// Keys at the first positions are kept apart as well.
void Layer::store_sinks(Context& context, const LayerPass& pass, const ConstNumberHeads& k, const ConstNumberHeads& v) {
  const KeyStore& all = pass.sinks->store;
  for (int64_t b = 0; b < all.sequences; ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t count = std::min(pass.sinks->count - pass.position[at], pass.shape.queries);
    if (count <= 0) continue;
    KeyStore one = all;
    one.sequences = 1, one.rings = part(all.rings, b * all.heads, all.heads);
    append_keys(
        context,
        {{k.at(b, 0, 0), 0, k.token, k.head}, {v.at(b, 0, 0), 0, v.token, v.head}, count, pass.position.subspan(at, 1)},
        pass.attention.rotation, one);
  }
}

// A query at position i sees those before i - window + 1 as well, the first its window does not hold.
void Layer::attend_sinks(Context& context, const LayerPass& pass, const AttentionQueries& queries, LayerScratch& s) {
  AttentionShape shape = pass.shape;
  shape.queries = pass.wanted();
  AttentionOptions options = pass.attention;
  const SinkKeys& sinks = *pass.sinks;
  options.visible = {.causal = true, .last = s.sink_last.data(), .stride = shape.queries};
  for (int64_t b = 0; b < shape.sequences; ++b) {
    for (int64_t t = 0; t < shape.queries; ++t) {
      const int64_t hidden = queries.position[static_cast<size_t>(b)] + t - sinks.window + 1;
      s.sink_last[static_cast<size_t>(b * shape.queries + t)] =
          static_cast<int32_t>(std::clamp<int64_t>(hidden, 0, sinks.count));
    }
  }
  ConstMat& table = options.bias.table;
  const int64_t distances = sinks.seen_from() + 1;
  if (table.cols > distances) table = table.cols_from(table.cols - distances, distances);
  options.rotation = sinks.rotation;
  options.epsilon = 0;
  const auto tiles = static_cast<size_t>(shape.sequences * shape.heads * shape.query_tiles());
  const Heads out{s.sinks.out.data, shape.queries * s.sinks.out.token, s.sinks.out.token, s.sinks.out.head};
  const AttentionQueries seen{queries.q, queries.position, out, s.sinks.lse, s.sink_tiles.first(tiles)};
  attention_forward(context, shape, options, seen, sinks.store);
  merge_attention(context, shape, {out, s.sinks.lse}, {queries.out.floats(), queries.lse});
}

// The input rows of the wanted tokens, one after the other.
ConstMat Layer::wanted_input(Context& context, const LayerPass& pass, ConstMat input, LayerScratch& s) {
  if (pass.skip == 0 && pass.step == pass.shape.queries) return input;
  const int64_t wanted = pass.wanted();
  const Mat rows = s.residual.rows_from(0, pass.shape.sequences * wanted);
  copy_rows(
      context, input, [&](int64_t r) { return r / wanted * pass.step + pass.skip + r % wanted; }, rows);
  return rows;
}

// 1 attention  2 its projection  3 feed-forward in  4 activation  5 feed-forward out
void Layer::forward(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const {
  keep(context, a.input, a.kept_input);
  project_qkv(context, pass, branch_input(context, attention_norm_, a.input, s), a, s);
  attend(context, pass, a, s);

  const auto wanted = [rows = pass.shape.sequences * pass.wanted()](auto m) { return cut(m, rows); };
  const Mat branch = wanted(s.branch);
  const NumberMat middle_sum = wanted(a.middle_sum), kept_middle = wanted(a.middle), kept_hidden = wanted(a.hidden),
                  output_sum = wanted(a.output_sum), active = wanted(s.active);
  const Mat middle = as_floats(kept_middle, s.d_branch.data), hidden = as_floats(kept_hidden, s.wide);
  out_.forward(context, wanted(a.mixed), branch);
  const ConstMat input = wanted_input(context, pass, a.input, s);
  join(context, attention_norm_, input, {branch, out_.bias(), dropout(pass, Place::kAttentionBranch)},
       {as_floats(middle_sum, branch.data), middle, middle_sum, kept_middle, s.stats});

  ffn_in_.forward(context, branch_input(context, ffn_norm_, config_.parallel_residual ? input : middle, s), hidden);
  const ActivationStep activation{config_.activation, ffn_in_.bias(), dropout(pass, Place::kActivation)};
  activation_forward(context, activation, hidden, active, kept_hidden);
  ffn_out_.forward(context, active, branch);
  join(context, ffn_norm_, middle, {branch, ffn_out_.bias(), dropout(pass, Place::kFfnBranch)},
       {as_floats(output_sum, branch.data), wanted(a.output), output_sum, {}, s.stats});
}

// s.d_qkv and s.d_bias from s.d_mixed.
void Layer::attention_gradients(Context& context, const LayerPass& pass, const LayerActivations& a,
                                LayerScratch& s) const {
  const int64_t T = pass.shape.queries, D = pass.shape.head_dim;
  if (pass.attention.bias.wants_gradient) clear(s.d_bias);
  const auto part = [&](int64_t i) { return heads_of(qkv_part(a.qkv, i), T, D); };
  const auto d_part = [&](int64_t i) { return heads_of(qkv_part(s.d_qkv, i), T, D); };
  attention_backward(context, pass.shape, attention_options(pass),
                     {part(0), part(1), part(2), T, pass.position, heads_of(a.mixed, T, D), a.lse, a.visited},
                     {heads_of(s.d_mixed, T, D), d_part(0), d_part(1), d_part(2), s.d_bias, pass.groups});
}

// 5 feed-forward out  4 activation  3 feed-forward in: dx += gradient of the branch's input.
void Layer::ffn_backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s, Mat dx) {
  const ConstNumberMat input = config_.parallel_residual ? a.kept_input : a.middle;
  const ActivationStep activation{config_.activation, nullptr, dropout(pass, Place::kActivation)};
  const ConstMat d_ffn =
      join_backward(context, pass, {ffn_norm_, a.output_sum, dropout(pass, Place::kFfnBranch)}, s, dx);
  activation_forward(context, activation, a.hidden, s.active);  // a.hidden holds its bias already
  ffn_out_.backward(context, s.active, d_ffn, s.d_active, pass.groups);
  activation_backward(context, activation, a.hidden, s.d_active, s.d_hidden);
  ffn_in_.backward(context, branch_input(context, ffn_norm_, input, s), s.d_hidden, s.branch, pass.groups);
  branch_input_backward(context, pass, {ffn_norm_, input}, s, dx);
}

// 2 attention's projection: s.d_mixed from dx, the gradient of the sum that the branch joins.
void Layer::projection_backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s,
                                Mat dx) {
  const ConstMat d_projection =
      join_backward(context, pass, {attention_norm_, a.middle_sum, dropout(pass, Place::kAttentionBranch)}, s, dx);
  out_.backward(context, a.mixed, d_projection, s.d_mixed, pass.groups);
}

void Layer::backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s, Mat dx) {
  if (config_.parallel_residual) {  // before the other branch adds to dx
    projection_backward(context, pass, a, s, dx);
    ffn_backward(context, pass, a, s, dx);
  } else {
    ffn_backward(context, pass, a, s, dx);
    projection_backward(context, pass, a, s, dx);
  }
  attention_gradients(context, pass, a, s);  // 1 attention
  if (config_.clip_qkv > 0) clip_backward(context, a.qkv, static_cast<float>(config_.clip_qkv), s.d_qkv);
  qkv_.backward(context, branch_input(context, attention_norm_, a.kept_input, s), s.d_qkv, s.branch, pass.groups);
  branch_input_backward(context, pass, {attention_norm_, a.kept_input}, s, dx);
}

// Causal attention: on average half of the keys, for scores and for values.
int64_t Layer::multiply_adds(int64_t length) const {
  return qkv_.multiply_adds() + out_.multiply_adds() + ffn_in_.multiply_adds() + ffn_out_.multiply_adds() +
         config_.dim * length;
}

}  // namespace longshot
