#include "generate/generator.h"

#include "base/clock.h"
#include "generate/scheduler.h"

namespace longshot {

Generated generate(Context& context, LoadedModel& loaded, std::span<const int32_t> prompt,
                   const GenerationConfig& config, const GenerationCallbacks& callbacks) {
  config.validate();
  const TextRequest request{.prompt = {prompt.begin(), prompt.end()}, .config = config};
  const Continuation first(loaded, request);  // refuses what cannot be made, before memory is taken for it
  const double start = seconds_now();
  Generated made{.samples = std::vector<Sample>(static_cast<size_t>(config.samples))};
  Scheduler scheduler(
      context, loaded,
      {.slots = config.samples, .capacity = first.reach(), .most_prompt = static_cast<int64_t>(first.inputs().size())});
  for (int64_t s = 0; s < config.samples; ++s) {
    Sample& sample = made.samples[static_cast<size_t>(s)];
    const auto show = [&sample, &callbacks, s](const std::string& text) {
      if (text.empty()) return;
      sample.text += text;
      callbacks.on_text(s, text);
    };
    TextRequest one = request;
    one.config.sampling.seed += static_cast<uint64_t>(s);
    one.should_stop = callbacks.should_stop;
    one.on_token = [&made, &sample, start, show](const MadeToken& token) {
      if (made.first_seconds == 0) made.first_seconds = seconds_now() - start;
      sample.ids.push_back(token.token.id);
      sample.log_p.push_back(token.token.log_p);
      show(token.text);
    };
    one.on_end = [&sample, show](Ended ended, const std::string& text) {
      show(text);
      sample.ended = ended;
    };
    scheduler.add(std::move(one));
  }
  while (scheduler.step()) continue;
  made.seconds = seconds_now() - start;
  return made;
}

}  // namespace longshot
