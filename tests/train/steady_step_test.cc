// A training step, once warm, allocates nothing and touches no new memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "context.h"
#include "train/support.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: GCC would warn of a new() that is freed.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace longshot {
namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

TEST(SteadyStep, AllocatesNothingAndFaultsNoPage) {
  for (const PositionMethod* method : position_methods()) {
    for (const auto& [recompute, precision] :
         {std::pair(false, Precision::kF32), std::pair(true, Precision::kF32), std::pair(false, Precision::kBf16)}) {
      SCOPED_TRACE(testing::Message() << method->name << (recompute ? ", recomputed, " : ", ")
                                      << name_of(kPrecisions, precision));
      const PrecisionScope scope(test_context(), precision);
      ModelConfig config = small_model(method->name);
      config.dropout = 0.1, config.attention_dropout = 0.1;
      Transformer model(config, true);
      model.initialize(test_context(), 1);
      TrainingPass pass(test_context(), model, {.sequences = 4, .length = config.length, .recompute = recompute});
      Optimizer optimizer({}, model.parameters());
      const std::vector<int32_t> tokens(static_cast<size_t>(4 * config.length), 7);
      const TrainingBatch batch{
          .sequences = 4, .length = config.length, .inputs = tokens, .targets = tokens, .first_key = {}};
      const auto step = [&] {
        pass.run(batch, 0.01f, 1);
        optimizer.step(test_context(), 1e-3);
      };
      for (int i = 0; i < 3; ++i) step();
      // The kernel may move a page of its own accord, now and then; a step that touches new memory faults each time.
      int64_t fewest_faults = std::numeric_limits<int64_t>::max();
      for (int round = 0; round < 5 && fewest_faults > 0; ++round) {
        const int64_t allocated = allocations, faulted = page_faults();
        for (int i = 0; i < 3; ++i) step();
        EXPECT_EQ(allocations - allocated, 0);
        fewest_faults = std::min(fewest_faults, page_faults() - faulted);
      }
#ifndef __SANITIZE_ADDRESS__  // its shadow memory is touched as the stack moves
      EXPECT_EQ(fewest_faults, 0);
#endif
    }
  }
}

}  // namespace
}  // namespace longshot
