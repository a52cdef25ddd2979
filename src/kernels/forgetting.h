// A cache of keys that forgets what cannot matter any more, for a linear bias -m d and streams without end.
//
// What a query of norm u could give all the keys j that a head has dropped, seen from position i, is at most
//
//   ln sum_j e^(u |k_j| - m (i - j))  <=  A(u) - m (i - last),      last: the position of the nearest dropped key
//
// u carries the scale of the scores. A is kept at a few norms; it is convex, so a chord between two of them lies above it.
// The query's own u_i = |q_i| and its lse_i over the keys that are held then certify, whatever the query,
//
//   probability left out of query i  <=  e^(A(u_i) - m (i - last) - lse_i)
//
// A tile of keys is dropped when its ring is full and the same bound is at most epsilon for queries to come. These are
// taken to be like those seen so far, with a margin: one for each class of norms, of the largest norm of the class times
// 9/8 and its smallest lse less 1. With bounds from the weights, |q| <= Q and |k| <= K for every query and key, nothing is
// taken for granted: lse_i >= -Q K + ln sum_{d < i - last} e^(-m d), because all keys nearer than the dropped ones are held.
// Where the bound is above epsilon, the ring grows instead.
//
// Letters: B sequences, H heads of queries, G heads of keys, T queries.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace longshot {

// The largest norms that a head's queries and keys can have; the query's with the scale of the scores.
struct NormBounds {
  double query = 0, key = 0;
};

// A of one head: what its dropped keys could weigh.
class DroppedKeys {
 public:
  // Keys with norms of at most `norm` at the `count` positions up to `last`, behind all dropped before.
  void add(double slope, double norm, int64_t last, int64_t count);
  // A(u); -inf as long as nothing was dropped.
  double log_mass(double u) const;
  // ln of the bound on what a query at `position` with norm u left out, less its lse.
  double log_left_out(double slope, double u, int64_t position) const {
    return log_mass(u) - slope * static_cast<double>(position - last_);
  }
  bool empty() const { return last_ < 0; }

 private:
  static constexpr int kNorms = 26;  // 0, 2^-4, .. 2^8 by factors of sqrt(2)
  static double norm(int n);
  std::array<double, kNorms> log_mass_ = [] {
    std::array<double, kNorms> nothing{};
    nothing.fill(-HUGE_VAL);
    return nothing;
  }();
  double largest_ = 0;  // norm of a dropped key
  int64_t last_ = -1;
};

// The queries a head has seen, by classes of their norms.
class SeenQueries {
 public:
  void add(double u, double lse);
  struct Class {
    double norm = 0;        // the largest
    double lse = HUGE_VAL;  // the smallest; none was seen: infinite
  };
  std::span<const Class> classes() const { return classes_; }

 private:
  std::array<Class, 24> classes_;  // by factors of sqrt(2)
};

// Of all heads and sequences.
struct ForgettingSummary {
  double left_out = 0;                    // of any query's attention, at most; rounding of the bound included
  int64_t least_kept = 0, most_kept = 0;  // keys in a ring
  int64_t dropped = 0;                    // keys, of the ring that dropped most
  int64_t grown = 0;                      // times a ring was made larger
  size_t bytes = 0;                       // of the rings

  void add(const ForgettingSummary& other);
};

// The rings of one layer's store and what they have forgotten.
class Forgetting {
 public:
  struct Config {
    AttentionShape shape;           // its queries: most tokens of a sequence at once
    std::span<const float> slopes;  // [H]
    float epsilon = 0;
    bool bf16 = false;                    // products round queries and keys
    std::vector<NormBounds> bounds = {};  // [H] from the weights; empty: from the queries seen
  };
  // Error(kUsage) where a slope has no tail to bound. The store is laid out without memory for its rings.
  Forgetting(const Config& config, KeyStore& store);

  // Before append_keys: `count` keys of each sequence have room behind its first `position[b]`.
  void make_room(KeyStore& store, std::span<const int64_t> position, int64_t count);

  struct Queries {
    std::span<const float> q_norm, lse;  // [B, H, T]
    int64_t queries = 0;                 // T
    std::span<const int64_t> position;   // [B] of the first
    std::span<const int64_t> counts;     // [B] of them that count
  };
  // After attention_forward: every query is certified, and known from now on.
  void certify(const Queries& queries);

  // A sequence begins anew.
  void restart(int64_t sequence);
  ForgettingSummary summary(const KeyStore& store) const;

 private:
  struct Head {
    DroppedKeys dropped;
    SeenQueries seen;
    double left_out = 0;
  };
  const Head& head(int64_t b, int64_t h) const { return heads_[static_cast<size_t>(b * slopes_count() + h)]; }
  int64_t slopes_count() const { return static_cast<int64_t>(slopes_.size()); }
  bool drop_oldest_tile(KeyRing& ring, int64_t index, int64_t next);
  bool negligible(const DroppedKeys& dropped, int64_t b, int64_t h, int64_t next, int64_t last) const;
  void grow(KeyRing& ring, int64_t index, int64_t tokens);

  std::vector<double> slopes_;  // [H]
  int64_t group_, head_dim_;
  double log_epsilon_;
  double longer_;                   // what rounding can make of |q| |k|
  std::vector<NormBounds> bounds_;  // [H] or empty
  std::vector<Head> heads_;         // [B H]
  std::vector<Workspace> memory_;   // [B G]
  std::vector<int64_t> dropped_;    // [B G] keys
  int64_t grown_ = 0;
};

}  // namespace longshot
