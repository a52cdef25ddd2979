// How large the queries and keys of a model can become, whatever the tokens: what `Forgetting` needs in order to take
// nothing for granted.
//
// A norm's output is y = g * z + s with |z| <= sqrt(C), because it divides by at least the deviation of its input. A head's
// projection of it, q = W y + b with W[D, C], has
//
//   |q|  <=  |W diag(g)|_2 sqrt(C) + |W s + b|
//
// and for G = M M^T the largest eigenvalue is at most (trace G^n)^(1/n): |M|_2^2 with an excess of at most D^(1/n), n = 64.
// The first block of a post-norm model has no norm in front; there |z| is the largest norm of a token's vector.
#pragma once
#include <vector>

#include "base/watch.h"
#include "model/transformer.h"

namespace longshot {

// [layers][H]. Error where a position method adds to the input of a model without a norm in front.
std::vector<std::vector<NormBounds>> norm_bounds(Context& context, Transformer& model, const Watch& watch = {});

}  // namespace longshot
