// ALiBi's options and its slopes, for file formats of programs that have a rule for slopes too.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "position/position.h"

namespace longshot {

struct AlibiOptions : MethodOptions<AlibiOptions> {
  enum class Scaling { kNone, kLinear, kNtk, kDynamic };
  std::vector<double> slopes;  // [heads]; empty: the paper's
  bool learned = false;
  Scaling scaling = Scaling::kNone;
  double factor = 1;

  void fields(Options& o) override;
  void running_fields(Options& o) override;
  std::unique_ptr<Position> make(const PositionShape& shape) const override;

  // [heads], checked.
  std::vector<float> slopes_of(int64_t heads) const;
};

// Slopes 2^(-M h / H), H a power of two; else as alibi.cc says. M is 8 in the paper.
inline constexpr double kPaperAlibiMax = 8;
std::vector<double> alibi_slopes(int64_t heads, double max = kPaperAlibiMax);
// The M that gives just these slopes, where there is one.
std::optional<double> alibi_max(std::span<const float> slopes);

}  // namespace longshot
