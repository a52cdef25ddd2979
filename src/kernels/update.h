// What an optimizer does to a flat range of parameters, and sums of ranges. Serial; the caller cuts the block into ranges.
// Every update also clears the gradient, so that the next step can accumulate.
#pragma once
#include <cstdint>

namespace longshot {

struct UpdateRange {
  float* value;
  float* grad;
  float* first;   // first moment or velocity
  float* second;  // second moment (AdamW only)
  int64_t count;
  float grad_scale;  // clipping
  float decay;       // weight decay of this range
};

// g = scale grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
// w = w - lr decay w - lr (m / c1) / (sqrt(v / c2) + eps),   c1 = 1 - b1^t,  c2 = 1 - b2^t
struct AdamW {
  float lr, beta1, beta2, eps, correction1, correction2;
};
void adamw_update(const AdamW& o, const UpdateRange& r);

// Nesterov's accelerated gradient as fairseq has it, with c = lr / lr of the step before:
// w = w (1 - lr decay) + mu^2 c v - (1 + mu) lr g;   v = mu c v - lr g
struct Nag {
  float lr, momentum, correction;
};
void nag_update(const Nag& o, const UpdateRange& r);

// v = mu v + g + decay w;   w = w - lr v
struct Sgd {
  float lr, momentum;
};
void sgd_update(const Sgd& o, const UpdateRange& r);

// to += from
void add_floats(const float* from, float* to, int64_t n);
// to += from, from = 0. No -0 comes out: a sum made in parts has the bits of one that was added to 0.
void move_floats(float* from, float* to, int64_t n);
double sum_of_squares(const float* x, int64_t n);

}  // namespace longshot
