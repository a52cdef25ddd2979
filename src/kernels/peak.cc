#include "kernels/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/workspace.h"
#include "kernels/bf16_x86.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

// Twelve independent chains hide the latency of FMA. Returns the flops done; `sink` keeps the compiler honest.
double FmaLoop(int64_t rounds, float* sink) {
  const D32 d;
  const Vec a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  // Different starts: equal chains would be computed once.
  const auto start = [&](float i) HWY_ATTR { return hn::Set(d, i + *sink); };
  Vec x0 = start(0), x1 = start(1), x2 = start(2), x3 = start(3), x4 = start(4), x5 = start(5), x6 = start(6),
      x7 = start(7), x8 = start(8), x9 = start(9), x10 = start(10), x11 = start(11);
  for (int64_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b), x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b), x6 = hn::MulAdd(x6, a, b), x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b), x9 = hn::MulAdd(x9, a, b), x10 = hn::MulAdd(x10, a, b), x11 = hn::MulAdd(x11, a, b);
  }
  const Vec s =
      hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)),
              hn::Add(hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)), hn::Add(hn::Add(x8, x9), hn::Add(x10, x11))));
  *sink = hn::GetLane(hn::SumOfLanes(d, s));
  return 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

float ReadLoop(const float* x, int64_t n) {
  const D32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec a = hn::Zero(d), b = a, c = a, e = a;
  for (int64_t i = 0; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, x + i));
    b = hn::Add(b, hn::LoadU(d, x + i + lanes));
    c = hn::Add(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {
namespace {

HWY_EXPORT(FmaLoop);
HWY_EXPORT(ReadLoop);
HWY_EXPORT(TargetName);

// Does so many rounds of multiplications and returns their flops.
using Loop = double (*)(int64_t rounds, float* sink);

// Each thread's own rates, added up: waiting for each other would measure the scheduler.
FmaRate measure_rate(const Context& context, double seconds, Loop loop) {
  constexpr int64_t kRounds = 20000;
  Context all(context.threads());
  std::vector<FmaRate> rates(static_cast<size_t>(all.threads()));
  all.tasks(all.threads(), [&](int64_t i) {
    double peak = 0, done = 0, last = seconds_now();
    const double begin = last;
    volatile float keep = 0;
    while (last < begin + seconds) {
      float sink = 0;
      const double flops = loop(kRounds, &sink);
      const double at = seconds_now();
      peak = std::max(peak, flops / (at - last));
      done += flops;
      last = at;
      keep = sink;
    }
    (void)keep;
    rates[static_cast<size_t>(i)] = {peak, done / (last - begin)};
  });
  FmaRate sum{};
  for (const FmaRate& rate : rates) sum = {sum.peak + rate.peak, sum.mean + rate.mean};
  return sum;
}

}  // namespace

FmaRate measure_fma_rate(const Context& context, double seconds) {
  return measure_rate(context, seconds,
                      [](int64_t rounds, float* sink) { return HWY_DYNAMIC_DISPATCH(FmaLoop)(rounds, sink); });
}

double measure_peak_flops(const Context& context, double seconds) { return measure_fma_rate(context, seconds).peak; }

double measure_bf16_peak_flops(const Context& context, double seconds) {
  switch (bf16_path()) {
    case Bf16Path::kTiles:
      return measure_rate(context, seconds, tiles_loop).peak;
    case Bf16Path::kPairs:
      return measure_rate(context, seconds, pairs_loop).peak;
    case Bf16Path::kRounded:
      break;
  }
  return measure_peak_flops(context, seconds);
}

double measure_read_bandwidth(const Context& context) {
  constexpr int64_t kFloats = 64 << 20;
  Context all(context.threads());
  std::span<float> data;
  const Workspace memory([&](Layout& at) { data = at.array<float>(kFloats); });
  std::fill(data.begin(), data.end(), 1.0f);
  double best = 0;
  std::vector<float> sinks(static_cast<size_t>(all.threads()) * 16);
  for (int i = 0; i < 5; ++i) {
    const double start = seconds_now();
    all.ranges(kFloats, 1 << 16, [&](int64_t begin, int64_t end, int thread) {
      sinks[static_cast<size_t>(thread) * 16] = HWY_DYNAMIC_DISPATCH(ReadLoop)(data.data() + begin, end - begin);
    });
    best = std::max(best, 4.0 * kFloats / (seconds_now() - start));
  }
  return best;
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

std::string arithmetic(const Context& context) {
  const std::string set = instruction_set();
  return context.precision() == Precision::kF32 ? set : set + ", bf16 by " + name_of(bf16_path());
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

ForcedInstructionSet::ForcedInstructionSet(const std::string& name) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    return;
  }
  fail("{} is no instruction set of this CPU and program", name);
}

ForcedInstructionSet::~ForcedInstructionSet() { hwy::SetSupportedTargetsForTest(0); }

}  // namespace longshot
#endif  // HWY_ONCE
