// A small token set and a small run on it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "context.h"
#include "data/token_set.h"
#include "formats/scratch.h"
#include "run/loaded_model.h"
#include "train/train_run.h"

namespace longshot {

// A text with something to learn, as a byte token set.
inline std::string small_text(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "Verse " + std::to_string(i * 7919 % 1000) + ": the river runs to the sea, and the sea is not full.\n";
  }
  text.resize(bytes);
  return text;
}

struct TokenizerFile {
  const char* name = "tokenizer.byte.json";
  std::string text = "{\"type\": \"byte\"}\n";
};
inline void write_token_set(const fs::path& dir, const std::string& text, const TokenizerFile& file = {}) {
  make_directories(dir);
  std::ofstream(dir / file.name) << file.text;
  const auto tokenizer = load_tokenizer(dir);
  for (const char* split : {"train", "valid"}) {
    TokenWriter writer(dir / (std::string(split) + ".tokens"), {.tokenizer_hash = tokenizer->hash(),
                                                                .vocab_size = tokenizer->vocab_size(),
                                                                .start_id = tokenizer->start_id()});
    writer.append(tokenizer->encode(split == std::string("valid") ? text.substr(0, text.size() / 4) : text));
    writer.add_text(text.size(), text.size() / 5);
    writer.finish();
  }
  write_json(dir / "meta.json", {{"format", 1}});
}
inline void write_token_set(const fs::path& dir, size_t bytes) { write_token_set(dir, small_text(bytes)); }

inline ModelConfig small_model(const std::string& position = "alibi") {
  ModelConfig c;
  c.layers = 2, c.dim = 32, c.heads = 4, c.vocab = 256, c.length = 24, c.position = position;
  return c;
}

inline TrainConfig small_training(int64_t steps) {
  TrainConfig t;
  t.steps = steps, t.batch_tokens = 24 * 5, t.micro_batch_tokens = 24 * 2, t.log_every = 1, t.save_every = 3;
  t.schedule.warmup = 2, t.schedule.lr = 3e-3;
  return t;
}

inline TrainRequest small_request(const fs::path& data, const fs::path& out, int64_t steps) {
  TrainRequest r;
  r.data = data.string(), r.out = out.string(), r.model = small_model(), r.train = small_training(steps);
  r.resume = true;
  return r;
}

struct TrainedRun {
  std::vector<float> weights;  // of the run's last checkpoint
  TrainResult result;
};

// Trains to the end, or until `stop_at` updates are done; resumes where the run stands.
inline TrainedRun trained(const TrainRequest& request, int64_t stop_at = -1) {
  int64_t done = 0;
  TrainEvents events;
  events.on_step = [&](const StepReport& r) { done = r.metrics.step; };
  events.should_stop = [&] { return done == stop_at; };
  const TrainResult result = train_run(test_context(), request, events);
  LoadedModel loaded = load_model(RunDir(request.out).checkpoint(result.step));
  const auto values = loaded.model->parameters().values();
  return {{values.begin(), values.end()}, result};
}

}  // namespace longshot
