// ALiBi attention on one's own memory, forward and backward: 2000 tokens, 8 heads of dimension 64, packed as [T, H, D].
#include <longshot.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int64_t T = 2000, H = 8, D = 64;
  std::vector<float> q(T * H * D), k = q, v = q, out = q, d_out(q.size(), 1.0f), d_q = q, d_k = q, d_v = q;
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = std::sin(0.1f * float(i)), k[i] = std::cos(0.3f * float(i)), v[i] = std::sin(0.7f * float(i));
  }
  std::vector<float> slopes, d_slopes(H);
  for (int h = 1; h <= H; ++h) slopes.push_back(std::exp2(-float(h)));

  longshot::Context context;
  longshot::Attention attention({.queries = T,
                                 .keys = T,
                                 .heads = H,
                                 .head_dim = D,
                                 .bias = {.kind = longshot::DistanceBias::Kind::kLinear, .slopes = slopes}});
  const auto heads = [&](std::vector<float>& x) { return longshot::packed_heads(x.data(), T, H, D); };
  attention.forward(context, {heads(q), heads(k), heads(v)}, heads(out));
  attention.backward(context, {heads(q), heads(k), heads(v)}, heads(out), heads(d_out),
                     {.d_q = heads(d_q), .d_k = heads(d_k), .d_v = heads(d_v), .d_slopes = d_slopes});
  std::printf("attention: lse %.4f, gradient of the first slope %.4f\n", attention.lse()[T - 1], d_slopes[0]);
}
