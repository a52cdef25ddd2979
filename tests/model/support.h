// A tiny model and a random batch for it.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/rng.h"
#include "context.h"
#include "model/inference.h"
#include "model/training.h"

namespace longshot {

inline ModelConfig tiny_config(const std::string& position = "alibi") {
  ModelConfig c;
  c.layers = 2, c.dim = 24, c.heads = 3, c.ffn = 40, c.vocab = 37, c.length = 19;
  c.position = position;
  return c;
}

// With every parameter away from its initial constants, so that nothing hides behind a 0 or a 1.
inline std::unique_ptr<Transformer> tiny_model(const ModelConfig& config, uint64_t seed = 3) {
  Context context(1);  // of its own: tests make models on several threads
  auto model = std::make_unique<Transformer>(config, true);
  model->initialize(context, seed);
  auto values = model->parameters().values();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += 0.05f * static_cast<float>(normal(seed, Stream::kTest, 11, i));
  }
  return model;
}

struct RandomBatch {
  RandomBatch(int64_t sequences, int64_t length, int64_t vocab, uint64_t seed = 5) {
    for (int64_t i = 0; i < sequences * length; ++i) {
      const auto n = static_cast<uint64_t>(i);
      inputs.push_back(static_cast<int32_t>(random_bits(seed, Stream::kTest, 1, n) % static_cast<uint64_t>(vocab)));
      targets.push_back(static_cast<int32_t>(random_bits(seed, Stream::kTest, 2, n) % static_cast<uint64_t>(vocab)));
      first_key.push_back(static_cast<int32_t>(i % length - i % length % 7));
    }
    batch = {.sequences = sequences, .length = length, .inputs = inputs, .targets = targets, .first_key = {}};
  }
  std::vector<int32_t> inputs, targets, first_key;
  TrainingBatch batch;
};

// Models as other programs build them: each option of a block's form on its own, and together.
inline std::vector<std::pair<std::string, ModelConfig>> foreign_forms() {
  using Settings = std::vector<std::pair<const char*, const char*>>;
  const std::pair<const char*, Settings> forms[] = {
      {"shared keys", {{"heads", "6"}, {"kv-heads", "2"}}},
      {"one head of keys", {{"position", "rotary"}, {"heads", "3"}, {"kv-heads", "1"}}},
      {"parallel", {{"parallel-residual", "true"}, {"activation", "gelu-exact"}}},
      {"embedding norm", {{"embedding-norm", "true"}, {"position", "learned"}, {"norm-epsilon", "0.01"}}},
      {"clipped", {{"clip-qkv", "0.4"}, {"activation", "gelu"}}},
      {"scaled", {{"score-scale", "0.7"}, {"activation", "gelu"}}},
      {"together",
       {{"heads", "6"},
        {"kv-heads", "3"},
        {"parallel-residual", "true"},
        {"embedding-norm", "true"},
        {"clip-qkv", "0.5"},
        {"score-scale", "0.2"},
        {"norm-epsilon", "1e-3"},
        {"activation", "gelu-exact"},
        {"embed-scale", "false"}}},
      {"llama's",
       {{"heads", "4"},
        {"kv-heads", "2"},
        {"position", "rotary"},
        {"rotary-style", "half"},
        {"norm", "rmsnorm"},
        {"norm-epsilon", "1e-6"},
        {"activation", "swiglu"},
        {"bias", "false"},
        {"tied", "false"},
        {"embed-scale", "false"}}},
  };
  std::vector<std::pair<std::string, ModelConfig>> configs;
  for (const auto& [name, settings] : forms) {
    ModelConfig c = tiny_config();
    for (const auto& [option, value] : settings) c.set(option, value);
    configs.emplace_back(name, c);
  }
  return configs;
}

inline std::vector<std::string> position_names() {
  std::vector<std::string> names;
  for (const PositionMethod* method : position_methods()) names.push_back(method->name);
  return names;
}

}  // namespace longshot
