#include "model/layer.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/gemm.h"
#include "model/rows.h"

namespace longshot {
namespace {

Activation activation_of(const std::string& name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  return Activation::kSwiglu;
}

int64_t hidden_width(const ModelConfig& config) { return config.ffn_dim() * (config.activation == "swiglu" ? 2 : 1); }

// Queries, keys or values.
Mat qkv_part(Mat qkv, int64_t i) { return qkv.cols_from(i * (qkv.cols / 3), qkv.cols / 3); }

std::string layer_name(int64_t index, const char* part) { return fmt::format("layers.{}.{}", index, part); }

}  // namespace

void LayerActivations::layout(Layout& at, const ModelConfig& config, const AttentionShape& shape) {
  const int64_t rows = shape.sequences * shape.queries, width = config.dim;
  qkv = at.mat(rows, 3 * width);
  mixed = at.mat(rows, width);
  lse = at.array<float>(shape.sequences * shape.heads * shape.queries);
  visited = at.array<VisitedTiles>(shape.sequences * shape.heads * shape.query_tiles());
  middle = at.mat(rows, width);
  hidden = at.mat(rows, hidden_width(config));
  if (config.norm_position == "post") {
    middle_sum = at.mat(rows, width);
    output_sum = at.mat(rows, width);
  }
}

void LayerScratch::layout(Layout& at, const ModelConfig& config, const AttentionShape& shape, Needs needs) {
  const int64_t rows = shape.sequences * shape.queries, width = config.dim;
  normed = at.mat(rows, width);
  branch = at.mat(rows, width);
  active = at.mat(rows, config.ffn_dim());
  mean = at.array<float>(rows);
  rstd = at.array<float>(rows);
  position = at.array<int64_t>(shape.sequences);
  if (!needs.training) {
    residual = at.mat(rows, width);
    return;
  }
  d_branch = at.mat(rows, width);
  d_mixed = at.mat(rows, width);
  d_hidden = at.mat(rows, hidden_width(config));
  d_active = config.activation == "swiglu" ? at.mat(rows, config.ffn_dim()) : d_hidden;
  d_qkv = at.mat(rows, 3 * width);
  if (needs.bias_columns > 0) d_bias = at.mat(shape.heads, needs.bias_columns);
}

Layer::Layer(const ModelConfig& c, Parameters& p, int64_t i)
    : config_(c),
      pre_norm_(c.norm_position == "pre"),
      activation_(activation_of(c.activation)),
      attention_norm_(p, c, layer_name(i, "attention_norm")),
      qkv_(p, layer_name(i, "attention.qkv"), {3 * c.dim, c.dim}, c.bias),
      out_(p, layer_name(i, "attention.out"), {c.dim, c.dim}, c.bias,
           1 / std::sqrt(2.0 * static_cast<double>(c.layers))),
      ffn_norm_(p, c, layer_name(i, "ffn_norm")),
      ffn_in_(p, layer_name(i, "ffn.in"), {hidden_width(c), c.dim}, c.bias),
      ffn_out_(p, layer_name(i, "ffn.out"), {c.dim, c.ffn_dim()}, c.bias,
               1 / std::sqrt(2.0 * static_cast<double>(c.layers))) {}

Dropout Layer::dropout(const LayerPass& pass, Place place) const {
  if (!pass.training) return {};
  const double rate = place == Place::kActivation ? config_.activation_dropout : config_.dropout;
  return {.rate = static_cast<float>(rate), .key = mix64(pass.dropout_key ^ static_cast<uint64_t>(place))};
}

AttentionOptions Layer::attention_options(const LayerPass& pass) const {
  AttentionOptions options = pass.attention;
  options.dropout = pass.training ? static_cast<float>(config_.attention_dropout) : 0.0f;
  options.dropout_key = mix64(pass.dropout_key ^ static_cast<uint64_t>(Place::kAttention));
  return options;
}

// What a branch works on: the normalised input, or the input itself.
ConstMat Layer::branch_input(Context& context, const NormLayer& norm, ConstMat x, LayerScratch& s) const {
  if (!pre_norm_) return x;
  const Mat y = s.normed.rows_from(0, x.rows);
  norm.forward(context, x, y, {s.mean, s.rstd});
  return y;
}

// dx += gradient of branch_input.
void Layer::branch_input_backward(Context& context, const NormLayer& norm, ConstMat x, ConstMat d_input,
                                  LayerScratch& s, Mat dx) const {
  if (pre_norm_) return norm.backward(context, d_input, x, {s.mean, s.rstd}, dx);
  parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
    add_residual(dx.rows_from(r, n), d_input.rows_from(r, n), nullptr, {}, dx.rows_from(r, n));
  });
}

// pre: out = x + drop(y + bias);   post: sum = x + drop(y + bias), out = norm(sum)
void Layer::add_branch(Context& context, const Branch& b, ConstMat x, ConstMat y, LayerScratch& s, Mat sum,
                       Mat out) const {
  const Norm norm = b.norm.view();
  parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
    const Mat to = (pre_norm_ ? out : sum).rows_from(r, n);
    add_residual(x.rows_from(r, n), y.rows_from(r, n), b.projection.bias(), b.drop.block(r), to);
    if (!pre_norm_) norm_forward(norm, to, out.rows_from(r, n), s.mean.data() + r, s.rstd.data() + r);
  });
}

// On entry dx is the gradient of out. On return it is the gradient of x through the residual connection alone, and
// the result is the gradient of y.
ConstMat Layer::add_branch_backward(Context& context, const Branch& b, ConstMat sum, LayerScratch& s, Mat dx) const {
  if (!pre_norm_) {
    b.norm.forward(context, sum, s.normed, {s.mean, s.rstd});
    std::memset(s.d_branch.data, 0, sizeof(float) * static_cast<size_t>(dx.rows * dx.cols));
    b.norm.backward(context, dx, sum, {s.mean, s.rstd}, s.d_branch);
    parallel_rows(context, dx.rows,
                  [&](int64_t r, int64_t n) { drop_rows(s.d_branch.rows_from(r, n), {}, dx.rows_from(r, n)); });
  }
  if (b.drop.rate == 0) return dx;
  parallel_rows(context, dx.rows, [&](int64_t r, int64_t n) {
    drop_rows(dx.rows_from(r, n), b.drop.block(r), s.d_branch.rows_from(r, n));
  });
  return s.d_branch;
}

// Context-only tokens need no query.
void Layer::project_qkv(Context& context, const LayerPass& pass, ConstMat x, Mat qkv) const {
  if (pass.skip == 0) {
    gemm_nt(context, x, qkv_.weight(), qkv);
  } else {
    gemm_nt(context, x, qkv_.weight().rows_from(config_.dim, 2 * config_.dim),
            qkv.cols_from(config_.dim, 2 * config_.dim));
    for (int64_t b = 0; b < pass.shape.sequences && pass.wanted() > 0; ++b) {
      const int64_t first = b * pass.step + pass.skip;
      gemm_nt(context, x.rows_from(first, pass.wanted()), qkv_.weight().rows_from(0, config_.dim),
              qkv.rows_from(first, pass.wanted()).cols_from(0, config_.dim));
    }
  }
  if (!qkv_.bias()) return;
  parallel_rows(context, qkv.rows, [&](int64_t r, int64_t n) { add_bias(qkv.rows_from(r, n), qkv_.bias()); });
}

// a.mixed[B W, C], a.lse and a.visited from a.qkv; the new keys and values go to the store.
void Layer::attend(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const {
  AttentionOptions options = attention_options(pass);
  const auto part = [&](int64_t i) { return heads_of(qkv_part(a.qkv, i), pass.step, pass.shape.head_dim); };
  append_keys(context, {part(1), part(2), pass.shape.queries, pass.position}, options.rotation, *pass.store);
  AttentionShape wanted = pass.shape;
  wanted.queries = pass.wanted();
  ConstHeads q = part(0);
  q.data += pass.skip * q.token;
  if (options.visible.first) options.visible.first += pass.skip;
  for (size_t b = 0; b < pass.position.size(); ++b) s.position[b] = pass.position[b] + pass.skip;
  attention_forward(context, wanted, options,
                    {q, s.position, heads_of(a.mixed, wanted.queries, wanted.head_dim), a.lse, a.visited}, *pass.store);
}

// The input rows of the wanted tokens, one after the other.
ConstMat Layer::wanted_input(Context& context, const LayerPass& pass, ConstMat input, LayerScratch& s) const {
  const int64_t W = pass.wanted(), rows = pass.shape.sequences * W;
  if (pass.skip == 0 && pass.step == pass.shape.queries) return input;
  parallel_rows(context, rows, [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
      std::memcpy(s.residual.row(r), input.row(r / W * pass.step + pass.skip + r % W),
                  sizeof(float) * static_cast<size_t>(config_.dim));
    }
  });
  return s.residual.rows_from(0, rows);
}

// 1 attention  2 its projection  3 feed-forward in  4 activation  5 feed-forward out
void Layer::forward(Context& context, const LayerPass& pass, LayerActivations& a, LayerScratch& s) const {
  project_qkv(context, pass, branch_input(context, attention_norm_, a.input, s), a.qkv);
  attend(context, pass, a, s);

  const int64_t rows = pass.shape.sequences * pass.wanted();
  const ConstMat input = wanted_input(context, pass, a.input, s);
  const auto cut = [&](Mat m) { return m.data ? m.rows_from(0, rows) : m; };
  const Mat branch = cut(s.branch), middle = cut(a.middle), hidden = cut(a.hidden), active = cut(s.active);
  gemm_nt(context, cut(a.mixed), out_.weight(), branch);
  add_branch(context, {attention_norm_, out_, dropout(pass, Place::kAttentionBranch)}, input, branch, s,
             cut(a.middle_sum), middle);

  gemm_nt(context, branch_input(context, ffn_norm_, middle, s), ffn_in_.weight(), hidden);
  const Dropout drop = dropout(pass, Place::kActivation);
  parallel_rows(context, rows, [&](int64_t r, int64_t n) {
    activation_forward(activation_, hidden.rows_from(r, n), ffn_in_.bias(), drop.block(r), active.rows_from(r, n));
  });
  gemm_nt(context, active, ffn_out_.weight(), branch);
  add_branch(context, {ffn_norm_, ffn_out_, dropout(pass, Place::kFfnBranch)}, middle, branch, s, cut(a.output_sum),
             cut(a.output));
}

// s.d_qkv and s.d_bias from s.d_mixed.
void Layer::attention_gradients(Context& context, const LayerPass& pass, const LayerActivations& a,
                                LayerScratch& s) const {
  const int64_t T = pass.shape.queries, D = pass.shape.head_dim;
  if (pass.attention.bias.wants_gradient) {
    std::memset(s.d_bias.data, 0, sizeof(float) * static_cast<size_t>(s.d_bias.rows * s.d_bias.cols));
  }
  const auto part = [&](int64_t i) { return heads_of(qkv_part(a.qkv, i), T, D); };
  const auto d_part = [&](int64_t i) { return heads_of(qkv_part(s.d_qkv, i), T, D); };
  attention_backward(
      context, pass.shape, attention_options(pass),
      {part(0), part(1), part(2), T, pass.position, heads_of(a.mixed, T, D), a.lse, a.visited},
      {.d_out = heads_of(s.d_mixed, T, D), .d_q = d_part(0), .d_k = d_part(1), .d_v = d_part(2), .d_bias = s.d_bias});
}

// 5 feed-forward out  4 activation  3 feed-forward in  2 attention's projection  1 attention
void Layer::backward(Context& context, const LayerPass& pass, const LayerActivations& a, LayerScratch& s,
                     Mat dx) const {
  const Branch ffn{ffn_norm_, ffn_out_, dropout(pass, Place::kFfnBranch)};
  const ConstMat d_ffn = add_branch_backward(context, ffn, a.output_sum, s, dx);
  const Dropout drop = dropout(pass, Place::kActivation);
  parallel_rows(context, dx.rows, [&](int64_t r, int64_t n) {  // a.hidden holds its bias already
    activation_forward(activation_, a.hidden.rows_from(r, n), nullptr, drop.block(r), s.active.rows_from(r, n));
  });
  ffn_out_.backward(context, s.active, d_ffn, s.d_active);
  parallel_rows(context, dx.rows, [&](int64_t r, int64_t n) {
    activation_backward(activation_, a.hidden.rows_from(r, n), s.d_active.rows_from(r, n), drop.block(r),
                        s.d_hidden.rows_from(r, n));
  });
  ffn_in_.backward(context, branch_input(context, ffn_norm_, a.middle, s), s.d_hidden, s.branch);
  branch_input_backward(context, ffn_norm_, a.middle, s.branch, s, dx);

  const Branch attention{attention_norm_, out_, dropout(pass, Place::kAttentionBranch)};
  const ConstMat d_projection = add_branch_backward(context, attention, a.middle_sum, s, dx);
  out_.backward(context, a.mixed, d_projection, s.d_mixed);
  attention_gradients(context, pass, a, s);
  qkv_.backward(context, branch_input(context, attention_norm_, a.input, s), s.d_qkv, s.branch);
  branch_input_backward(context, attention_norm_, a.input, s.branch, s, dx);
}

}  // namespace longshot
