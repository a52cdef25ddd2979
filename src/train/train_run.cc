#include "train/train_run.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"

namespace longshot {
namespace {

// Model options that leave the meaning of trained weights alone.
bool may_change_from_source(const std::string& option) {
  constexpr std::array<std::string_view, 9> kFree = {
      "length",           "dropout",       "attention-dropout", "activation-dropout",   "embedding-dropout",
      "adaptive-dropout", "document-mask", "attention-epsilon", "adaptive-padding-rows"};
  return std::ranges::find(kFree, option) != kFree.end();
}

struct Difference {
  std::string name, before, now;
};

// The first option that is not what it was and may not change. One that `before` does not know of is newer than it.
std::optional<Difference> difference(const OptionValues& before, const OptionValues& now,
                                     bool (*may_change)(const std::string&)) {
  for (const auto& [name, value] : now) {
    const auto old = before.find(name);
    if (old != before.end() && old->second != value && !may_change(name)) return Difference{name, old->second, value};
  }
  return std::nullopt;
}

// Going on must give what an uninterrupted run would have given: the same options, tokenizer and text.
void require_same_run(const fs::path& dir, const CheckpointInfo& info, const TrainRequest& request,
                      const TokenSet& tokens) {
  const TrainingState& training = training_of(info, dir);
  const auto refuse = [&](const std::optional<Difference>& d) {
    if (!d) return;
    fail_usage(
        "--{} is {}, but {} was trained with {}. On resuming only steps, max-seconds, what is logged, validated "
        "and saved when, precision, threads and memory may change. To train its weights with other options: --from {}",
        d->name, d->now, request.out, d->before, request.out);
  };
  const auto never = [](const std::string&) { return false; };
  refuse(difference(option_values(info.model), option_values(request.model), never));
  refuse(difference(training.options, option_values(request.train), may_change_on_resume));
  const std::string from = info.from ? info.from->run : "";
  if (from != request.from) refuse(Difference{"from", from, request.from});
  require_same_tokenizer(tokens, vocabulary_of(info, dir, request.out));
  const TokenFile& text = tokens.split("train");
  require(training.data_hash == hex(text.data_hash()),
          "{}: was trained on other text: hash {}, but {} has {}. To train its weights on other text: --from {}",
          request.out, training.data_hash, text.path().string(), hex(text.data_hash()), request.out);
}

int64_t step_to_resume(const RunWriter& run, int64_t wanted) {
  const std::vector<int64_t>& steps = run.checkpoints();
  if (wanted > 0) {
    require(std::ranges::binary_search(steps, wanted), "{}: no checkpoint of step {}", run.dir().path().string(),
            wanted);
    return wanted;
  }
  return steps.empty() ? 0 : steps.back();
}

// What to say where training goes on in another precision.
std::string other_precision(const CheckpointInfo& info, const fs::path& dir, const TrainRequest& request) {
  const OptionValues& before = training_of(info, dir).options;
  const auto old = before.find("precision");
  const std::string was = old == before.end() ? name_of(kPrecisions, Precision::kF32) : old->second;
  const std::string now = name_of(kPrecisions, request.train.precision);
  return was == now ? ""
                    : fmt::format("the precision changes: trained in {} until step {}, in {} from now on", was,
                                  info.step, now);
}

// The checkpoint of `step`, fit to go on from.
CheckpointInfo checked_checkpoint(const RunWriter& run, int64_t step, const TrainRequest& request,
                                  const TokenSet& tokens, const Watch& watch) {
  const fs::path dir = run.dir().checkpoint(step);
  CheckpointInfo info;
  try {
    info = read_checkpoint(dir, watch);
    require(info.step == step, "{}: its state is of step {}. Was the directory renamed?", dir.string(), info.step);
  } catch (const Stopped&) {
    throw;
  } catch (const Error& e) {
    const std::vector<int64_t>& steps = run.checkpoints();
    const auto place = std::ranges::find(steps, step);
    const std::string then =
        place == steps.begin() ? "training begins anew" : fmt::format("training goes on from step {}", *(place - 1));
    fail("{} Move {} away, and {}.", e.what(), dir.string(), then);
  }
  require_same_run(dir, info, request, tokens);
  return info;
}

// Another run's weights, as the ones to start with.
Origin load_source(const TrainRequest& request, const TokenSet& tokens, Transformer& model, const Watch& watch) {
  const fs::path dir = find_checkpoint(request.from);
  const CheckpointInfo info = read_checkpoint(dir, watch.part(0, 0.5));
  require_same_tokenizer(tokens, vocabulary_of(info, dir, request.from));
  if (const auto d = difference(option_values(info.model), option_values(request.model), may_change_from_source)) {
    fail_usage("--{} is {}, but {} was trained with {}: its weights would mean something else", d->name, d->now,
               request.from, d->before);
  }
  try {
    load_weights(dir, model, watch.part(0.5, 1));
  } catch (const Stopped&) {
    throw;
  } catch (const Error& e) {
    fail("--from {}: its weights do not fit at --length {} (it was trained at {}): {}", request.from,
         request.model.length, info.model.length, e.what());
  }
  return {.run = request.from, .step = info.step, .weights = info.weights};
}

void require_room(const RunDir& run, const Transformer& model, const TrainConfig& train) {
  const int64_t blocks = 1 + Optimizer::moments(train.optimizer);
  const auto bytes = static_cast<uint64_t>(model.parameters().count() * blocks) * sizeof(float);
  std::error_code unknown;
  const fs::space_info space = fs::space(run.path(), unknown);
  require(unknown || space.available >= bytes, "{}: a checkpoint takes {} MB, but {} MB are free on this disk",
          run.path().string(), bytes / 1000000 + 1, space.available / 1000000);
}

TrainerCallbacks trainer_callbacks(const TrainEvents& events, const TrainRequest& request, const TokenSet& tokens,
                                   Transformer& model) {
  TrainerCallbacks callbacks{
      .on_step = events.on_step, .on_note = events.on_note, .validate = {}, .should_stop = events.should_stop};
  const bool can = tokens.has("valid") && tokens.split("valid").size() > 0;
  require_usage(can || request.train.eval_every == 0, "--eval-every {}: {} has no validation split ('valid')",
                request.train.eval_every, request.data);
  require_usage(can || request.train.eval_lengths.empty(), "--eval-lengths: {} has no validation split ('valid')",
                request.data);
  if (!can || !events.validate) return callbacks;
  const TokenFile& valid = tokens.split("valid");
  valid.verify(events.reading);
  const int64_t count = request.eval_tokens > 0 ? std::min(request.eval_tokens, valid.size()) : valid.size();
  for (const int64_t length : request.train.eval_lengths) {
    require_usage(length <= model.position().max_length(),
                  "--eval-lengths {}: position method '{}' is not defined beyond {}", length, request.model.position,
                  model.position().max_length());
    require_usage(length <= count, "--eval-lengths {}: there are {} tokens to validate on", length, count);
  }
  callbacks.validate = [&events, &model, &valid, count](int64_t length) {
    return events.validate(model, valid, count, length);
  };
  return callbacks;
}

}  // namespace

void TrainRequest::fields(Options& o) {
  o.add("data", data, "token set made by `longshot prepare`");
  o.add("out", out, "directory of the run");
  o.add("from", from,
        "start with the weights of this run or checkpoint, imported ones too; the model's options are its");
  o.add("eval-tokens", eval_tokens, "validation tokens per validation; 0: all");
  o.add("threads", threads, "0: all cores, shared with other runs on this machine");
  model.fields(o);
  train.fields(o);
}

void apply_implied_options(const TrainRequest& request, Options& options) {
  const RunDir run(request.out);
  if (request.resumes() && fs::exists(run.config())) {
    options.load_toml(run.config());
  } else if (!request.from.empty()) {
    for (const auto& [name, value] : option_values(read_checkpoint(find_checkpoint(request.from)).model)) {
      options.at(name).set(value);
    }
  }
}

int64_t model_vocabulary(const TrainRequest& request, const TokenSet& tokens) {
  const bool resumes = request.resumes() && !checkpoint_steps(RunDir(request.out)).empty();
  const std::string source = resumes ? request.out : request.from;
  const int64_t known = tokens.tokenizer().vocab_size();
  if (source.empty()) return known;
  try {
    return std::max(known, read_checkpoint(find_checkpoint(source)).model.vocab);
  } catch (const Error&) {
    return known;  // whoever goes on from it says what is wrong with it
  }
}

namespace {

void check(const TrainRequest& request) {
  require_usage(!request.data.empty(), "training needs --data DIR, a token set made by `longshot prepare`");
  require_usage(!request.out.empty(), "training needs --out DIR, the directory of the run");
  require_usage(request.resume_step >= 0, "--resume-step must not be negative, but is {}", request.resume_step);
  require_usage(request.eval_tokens >= 0, "--eval-tokens must not be negative, but is {}", request.eval_tokens);
}

// The run on disk, on rank 0 alone, and where it stands.
struct Opened {
  std::optional<RunWriter> run{};
  int64_t step = 0;
  std::optional<CheckpointInfo> checkpoint{};
  std::optional<Origin> from{};
  fs::path dir() const { return checkpoint ? run->dir().checkpoint(step) : fs::path(); }
};

void open_run(Opened& opened, const TrainRequest& request, const TokenSet& tokens, Transformer& model,
              const Watch& watch) {
  opened.run.emplace(RunDir(request.out));
  require_usage(request.resumes() || opened.run->checkpoints().empty(),
                "{}: holds a run already. Use --resume, or another --out.", request.out);
  opened.step = step_to_resume(*opened.run, request.resume_step);
  if (opened.step > 0) opened.checkpoint = checked_checkpoint(*opened.run, opened.step, request, tokens, watch);
  if (opened.step == 0 && !request.from.empty()) opened.from = load_source(request, tokens, model, watch);
  require_room(opened.run->dir(), model, request.train);
}

// Everything is checked: from here on the run changes.
void begin_run(Opened& opened, TrainRequest& request, const TrainEvents& events) {
  const fs::path abandoned = opened.run->begin_at(opened.step, request.train.keep);
  if (!abandoned.empty()) {
    events.on_note(fmt::format("later checkpoints moved to {}: a run of its own", abandoned.string()));
  }
  if (opened.checkpoint) {
    const std::string other = other_precision(*opened.checkpoint, opened.dir(), request);
    if (!other.empty()) events.on_note(other);
  }
  Options options;
  request.fields(options);
  opened.run->write_config(options.to_toml(false));
}

// f() on rank 0, or here where there are no ranks.
template <class F>
void on_root(Communicator* world, F&& f) {
  world ? world->on_root(f) : f();
}

template <class F>
void on_each(Communicator* world, F&& f) {
  world ? world->on_each(f) : f();
}

}  // namespace

TrainResult train_run(Context& context, TrainRequest request, const TrainEvents& events, Communicator* world) {
  if (world && world->is_alone()) world = nullptr;
  check(request);
  const TokenSet tokens(request.data);
  on_root(world, [&] { request.model.vocab = model_vocabulary(request, tokens); });
  if (world) world->broadcast(std::as_writable_bytes(std::span(&request.model.vocab, 1)));
  request.model.validate();
  request.train.validate(request.model.length);
  if (world) {
    Options options;
    request.fields(options);
    require_same_work(*world, options, facts_of(tokens));
  }
  const PrecisionScope precision(context, request.train.precision);
  Transformer model(request.model, true, Transformer::Memory::kMemory,
                    Trainer::shared_gradients(request.train, request.model.length, world));
  TrainerCallbacks callbacks;
  on_each(world, [&] {
    tokens.split("train").verify(events.reading);
    callbacks = trainer_callbacks(events, request, tokens, model);
  });

  Opened opened;
  on_root(world, [&] { open_run(opened, request, tokens, model, events.reading); });
  if (opened.step == 0 && !opened.from) model.initialize(context, request.train.seed);
  Trainer trainer(context, {model, tokens.split("train"), &tokens.tokenizer(), opened.from, world}, request.train);
  if (world) {
    trainer.begin_together({opened.dir(), opened.checkpoint ? &*opened.checkpoint : nullptr, events.reading});
  } else if (opened.checkpoint) {
    trainer.restore(opened.dir(), *opened.checkpoint, events.reading);
  }
  on_root(world, [&] { begin_run(opened, request, events); });
  events.on_start(trainer, model, opened.step);
  return trainer.train(opened.run ? &*opened.run : nullptr, callbacks);
}

}  // namespace longshot
