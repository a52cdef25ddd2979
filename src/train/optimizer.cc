#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/context.h"
#include "base/error.h"
#include "kernels/update.h"

namespace longshot {
namespace {

constexpr int64_t kRangeFloats = 1 << 16;

}  // namespace

void OptimizerConfig::fields(Options& o) {
  o.group("optimizer");
  o.add("optimizer", optimizer, kOptimizers, "how gradients become updates");
  o.add("beta1", beta1, "adamw: decay of the first moment");
  o.add("beta2", beta2, "adamw: decay of the second moment");
  o.add("eps", eps, "adamw: added to the root of the second moment");
  o.add("momentum", momentum, "nag, sgd");
  o.add("weight-decay", weight_decay, "on matrices; never on norms, biases and position tensors");
  o.add("clip", clip, "largest norm of the whole gradient; 0: no clipping");
}

void OptimizerConfig::validate() const {
  const auto share = [](const char* name, double v) {
    require_usage(v >= 0 && v < 1, "--{} must be in [0, 1), not {}", name, v);
  };
  share("beta1", beta1);
  share("beta2", beta2);
  share("momentum", momentum);
  require_usage(eps > 0 && std::isfinite(eps), "--eps must be positive, not {}", eps);
  require_usage(weight_decay >= 0 && std::isfinite(weight_decay), "--weight-decay must not be negative, but is {}",
                weight_decay);
  require_usage(clip >= 0, "--clip must not be negative, but is {}", clip);
}

int64_t Optimizer::moments(const OptimizerConfig& config) { return config.optimizer == OptimizerKind::kAdamW ? 2 : 1; }

Optimizer::Optimizer(const OptimizerConfig& config, Parameters& parameters)
    : Optimizer(config, parameters, Shards(parameters, 1).units(), {{0, parameters.end()}}) {}

Optimizer::Optimizer(const OptimizerConfig& config, Parameters& parameters, const Shards& shards, int rank)
    : Optimizer(config, parameters, shards.units(), shards.of_rank(rank)) {}

Optimizer::Optimizer(const OptimizerConfig& config, Parameters& parameters, std::vector<NormUnit> units,
                     std::vector<FloatRange> own)
    : config_(config), parameters_(parameters), units_(std::move(units)), own_(std::move(own)) {
  find_ranges();
  squares_.resize(units_.size());
  int64_t size = 0;
  for (const FloatRange& r : own_) size += r.count();
  memory_ = Workspace([&](Layout& at) {
    first_ = at.array<float>(size);
    second_ = at.array<float>(moments(config) > 1 ? size : 0);
  });
}

// Pieces of a tensor in one of the own ranges; these begin and end with units.
void Optimizer::find_ranges() {
  const std::vector<Tensor>& tensors = parameters_.tensors();
  size_t unit = 0, tensor = 0;
  int64_t moment = 0;
  for (const FloatRange& r : own_) {
    while (unit < units_.size() && units_[unit].offset < r.begin) ++unit;
    const int64_t in_front = moment - r.begin;
    for (; unit < units_.size() && units_[unit].offset < r.end; ++unit) {
      const NormUnit& u = units_[unit];
      while (u.offset >= tensors[tensor].offset + tensors[tensor].size) ++tensor;
      const bool goes_on = !ranges_.empty() && ranges_.back().offset + ranges_.back().count == u.offset &&
                           u.offset > tensors[tensor].offset && ranges_.back().count < kRangeFloats;
      if (goes_on) {
        ranges_.back().count += u.count;
      } else {
        ranges_.push_back({u.offset, u.count, u.offset + in_front, unit, tensors[tensor].matrix});
      }
    }
    moment += r.count();
  }
}

std::vector<NamedBlock> Optimizer::blocks() {
  std::vector<NamedBlock> blocks{{"first.", first_}};
  if (moments(config_) > 1) blocks.push_back({"second.", second_});  // empty where no parameter is its own
  return blocks;
}

std::map<std::string, double> Optimizer::numbers() const {
  return {{"updates", static_cast<double>(updates_)}, {"last_lr", last_lr_}};
}

void Optimizer::set_numbers(const std::map<std::string, double>& numbers, const std::string& origin) {
  const auto number = [&](const char* name) {
    const auto found = numbers.find(name);
    require(found != numbers.end(), "{}: the optimizer's '{}' is missing", origin, name);
    return found->second;
  };
  const double updates = number("updates");
  require(updates >= 0 && updates <= 0x1p53 && updates == std::floor(updates),
          "{}: the optimizer's 'updates' is {}, not a count", origin, updates);
  updates_ = static_cast<int64_t>(updates);
  last_lr_ = number("last_lr");
}

double Optimizer::gradient_norm(Context& context, const Complete& complete) {
  const float* grads = parameters_.grads().data();
  context.tasks(static_cast<int64_t>(ranges_.size()), [&](int64_t i) {
    const Range& r = ranges_[static_cast<size_t>(i)];
    for (size_t u = r.unit; u < units_.size() && units_[u].offset < r.offset + r.count; ++u) {
      squares_[u] = sum_of_squares(grads + units_[u].offset, units_[u].count);
    }
  });
  if (complete) complete(squares_);
  return std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
}

double Optimizer::step(Context& context, double lr, const Complete& complete) {
  const ZoneTimer timer(context, Zone::kOptimizer);
  const double norm = gradient_norm(context, complete);
  const double scale = config_.clip > 0 ? std::min(1.0, config_.clip / (norm + 1e-6)) : 1.0;
  const auto t = static_cast<double>(++updates_);
  const AdamW adamw{.lr = static_cast<float>(lr),
                    .beta1 = static_cast<float>(config_.beta1),
                    .beta2 = static_cast<float>(config_.beta2),
                    .eps = static_cast<float>(config_.eps),
                    .correction1 = static_cast<float>(1 - std::pow(config_.beta1, t)),
                    .correction2 = static_cast<float>(1 - std::pow(config_.beta2, t))};
  const Nag nag{.lr = static_cast<float>(lr),
                .momentum = static_cast<float>(config_.momentum),
                .correction = static_cast<float>(last_lr_ > 0 ? lr / last_lr_ : lr)};
  const Sgd sgd{.lr = static_cast<float>(lr), .momentum = static_cast<float>(config_.momentum)};
  context.tasks(static_cast<int64_t>(ranges_.size()), [&](int64_t i) {
    const Range& r = ranges_[static_cast<size_t>(i)];
    const UpdateRange u{.value = parameters_.values().data() + r.offset,
                        .grad = parameters_.grads().data() + r.offset,
                        .first = first_.data() + r.moment,
                        .second = second_.empty() ? nullptr : second_.data() + r.moment,
                        .count = r.count,
                        .grad_scale = static_cast<float>(scale),
                        .decay = static_cast<float>(r.decay ? config_.weight_decay : 0.0)};
    switch (config_.optimizer) {
      case OptimizerKind::kAdamW:
        return adamw_update(adamw, u);
      case OptimizerKind::kNag:
        return nag_update(nag, u);
      case OptimizerKind::kSgd:
        return sgd_update(sgd, u);
    }
  });
  last_lr_ = lr;
  return norm;
}

}  // namespace longshot
