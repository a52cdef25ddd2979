// Several models at once, each on a thread and a context of its own, give the bits they give alone.
#include <thread>

#include "model/support.h"

namespace longshot {
namespace {

struct Outcome {
  std::vector<float> losses, scores, gradients;
  bool operator==(const Outcome&) const = default;
};

// Products large enough for several threads each.
Outcome train_and_score(const std::string& position, uint64_t seed) {
  ModelConfig c = tiny_config(position);
  c.dim = 48, c.vocab = 300, c.length = 64;
  c.activation = seed % 2 ? Activation::kRelu : Activation::kSwiglu;
  Context context(2);
  Outcome outcome;
  for (int round = 0; round < 6; ++round) {
    const auto model = tiny_model(c, seed);
    const RandomBatch data(2, c.length, c.vocab, seed);
    TrainingPass pass(context, *model, {.sequences = 2, .length = c.length});
    pass.run(data.batch, 1, 1);
    outcome.losses.insert(outcome.losses.end(), pass.losses().begin(), pass.losses().end());
    const auto grads = model->parameters().grads();
    outcome.gradients.insert(outcome.gradients.end(), grads.begin(), grads.end());
    Inference inference(context, *model, {.sequences = 2, .tokens = c.length});
    std::vector<float> losses(data.targets.size());
    inference.score({.inputs = data.inputs, .length = c.length, .first_key = {}}, data.targets, 0, losses);
    outcome.scores.insert(outcome.scores.end(), losses.begin(), losses.end());
  }
  return outcome;
}

TEST(Threads, ModelsRunAtOnceAsTheyRunAlone) {
  const std::vector<std::string> names{"alibi", "t5", "rotary"};
  std::vector<Outcome> alone, together(names.size());
  for (size_t i = 0; i < names.size(); ++i) alone.push_back(train_and_score(names[i], i));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < names.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = train_and_score(names[i], i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < names.size(); ++i) EXPECT_TRUE(alone[i] == together[i]) << names[i];
}

}  // namespace
}  // namespace longshot
