#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/info_compat.h"
#include "cli/info_gguf.h"
#include "cli/info_hf.h"
#include "cli/info_tokens.h"
#include "cli/info_torch.h"
#include "cli/progress.h"
#include "formats/safetensors.h"
#include "run/biases.h"
#include "run/loaded_model.h"
#include "run/read_run.h"

namespace longshot {
namespace {

// The distance from which neighbouring biases of a head collide when kept in 16 bits as slope * key position: with 11
// significant bits, integers above 2048 do. Longshot computes them in 32 bits from the distance instead.
constexpr int kHalfPrecisionLimit = 2048;

constexpr int64_t kShownDistances = 8;

Json bias_json(Transformer& model) {
  Json json;
  const std::optional<Biases> biases = biases_of(model, kShownDistances);
  if (!biases) return json;
  if (!biases->slopes.empty()) json["slopes"] = biases->slopes;
  for (const std::vector<double>& row : biases->table) {
    const auto shown = std::min<size_t>(row.size(), static_cast<size_t>(kShownDistances));
    json["bias_by_distance"].push_back(std::vector<double>(row.begin(), row.begin() + static_cast<int64_t>(shown)));
  }
  return json;
}

class InfoCommand : public Command {
 public:
  Arguments arguments() const override { return {"PATH", 1, 1}; }
  void options(Options& o) override {
    o.add("json", json_, "print JSON instead of text");
    o.add("compat", compat_, "of a run: how other programs would treat this model");
  }

  int run() override {
    const fs::path path = args[0];
    require(fs::exists(path), "{}: no such file or directory", path.string());
    if (compat_) {
      print_compat(read_checkpoint(find_checkpoint(path)).model, json_);
      return 0;
    }
    if (fs::exists(ExperimentDir(path).plan())) return print_experiment(ExperimentDir(path));
    if (fs::exists(path / kStateFile) || fs::exists(RunDir(path).checkpoints())) return print_checkpoint(path);
    if (path.extension() == ".safetensors") return print_safetensors(path);
    if (print_hf_info(path, json_) || print_gguf_info(path, json_) || print_token_info(path, json_) ||
        print_torch_info(path, json_))
      return 0;
    fail(
        "{}: neither a run, a comparison, a checkpoint, a token set, a tokenizer, a Hugging Face model, a GGUF, a "
        "safetensors nor a PyTorch file",
        path.string());
  }

 private:
  int print_checkpoint(const fs::path& path) const {
    LoadedModel loaded = load_model(path, {}, WeightStorage{.map_narrow = true});
    const ModelConfig& c = loaded.info.model;
    const RunDir run(path);
    Json json{{"checkpoint", loaded.dir.string()},
              {"step", loaded.info.step},
              {"parameters", loaded.model->parameters().count()},
              {"position", c.position},
              {"train_length", c.length},
              {"tokenizer_hash", fmt::format("{:016x}", loaded.info.tokenizer_hash)},
              {"model", c.to_json()}};
    if (const Json biases = bias_json(*loaded.model); !biases.is_null()) json.update(biases);
    const std::vector<int64_t> steps = checkpoint_steps(run);
    if (!steps.empty()) json["checkpoints"] = steps;
    const std::optional<BestRecord> best = read_best(run);
    if (best) json["best"] = write_fields(*best);
    if (json_) {
      show_json(json, 2);
      return 0;
    }
    fmt::print("checkpoint    {}\nstep          {}\nparameters    {} ({})\n", printable(loaded.dir.string()),
               loaded.info.step, loaded.model->parameters().count(),
               count_text(static_cast<double>(loaded.model->parameters().count())));
    fmt::print("model         {} layers, dim {}, {} heads of {}, ffn {}, vocabulary {}\n", c.layers, c.dim, c.heads,
               c.head_dim(), c.ffn_dim(), c.vocab);
    fmt::print("position      {} ({})\ntrain length  {}\n", c.position, position_method(c.position).summary, c.length);
    if (json.contains("slopes")) {
      fmt::print("slopes        {} (bias -slope * distance, 32-bit, relative)\n", json["slopes"].dump());
      fmt::print("              as slope * key position in 16 bits neighbours would collide from position {} on\n",
                 kHalfPrecisionLimit);
    }
    if (json.contains("bias_by_distance")) {
      for (const Json& row : json["bias_by_distance"]) fmt::print("bias at 0..7  {}\n", row.dump());
    }
    if (loaded.tokenizer) {
      fmt::print("tokenizer     {}, {} entries, hash {:016x}\n", loaded.tokenizer->name(),
                 loaded.tokenizer->vocab_size(), loaded.tokenizer->hash());
    }
    if (json.contains("checkpoints")) fmt::print("checkpoints   {}\n", json["checkpoints"].dump());
    if (best) {
      fmt::print("best          step {}, validation loss {:.4f}, perplexity {:.3f}\n", best->step, best->valid_loss,
                 std::exp(best->valid_loss));
    }
    return 0;
  }

  int print_experiment(const ExperimentDir& dir) const {
    const Results results = read_experiment(dir);
    if (json_) {
      show_json(results.to_json(), 2);
      return 0;
    }
    const auto finished = std::ranges::count_if(results.runs, [](const RunRecord& r) { return r.finished(); });
    fmt::print("comparison    {}\nbegun         {} with longshot {}\ndata          {}, {} tokenizer\n",
               printable(dir.path().string()), printable(results.date), printable(results.version),
               printable(results.data.name), printable(results.data.tokenizer));
    fmt::print("models        {} of {} trained and tested\n\n", finished,
               std::max(results.planned_runs.size(), results.runs.size()));
    for (const std::string& name : results.planned_runs) {
      const auto run = std::ranges::find(results.runs, name, &RunRecord::name);
      const bool begun = run != results.runs.end();
      fmt::print("{:<32}{}\n", printable(name), begun ? state_text(*run) : "not begun");
    }
    return 0;
  }

  static std::string state_text(const RunRecord& run) {
    if (!run.finished()) return fmt::format("step {} of {}", run.steps.value_or(0), run.planned_steps.value_or(0));
    if (run.evals.empty()) return "trained, not tested";
    std::string text = "perplexity";
    for (const EvalRecord& e : run.evals) {
      if (e.mode != run.evals.front().mode) continue;
      text += e.perplexity ? fmt::format(" {:.2f} at {}", *e.perplexity, e.length) : fmt::format(" - at {}", e.length);
    }
    return text;
  }

  int print_safetensors(const fs::path& path) const {
    const Safetensors file(path);
    Json json = Json::array();
    for (const NamedTensor& t : file.tensors())
      json.push_back({{"name", t.name}, {"dtype", dtype_name(t.dtype)}, {"shape", t.shape}});
    if (json_) {
      show_json(json, 2);
      return 0;
    }
    for (const NamedTensor& t : file.tensors())
      fmt::print("{:<5} {:<16} {}\n", dtype_name(t.dtype), shape_text(t.shape), printable(t.name));
    return 0;
  }

  bool json_ = false, compat_ = false;
};

}  // namespace

std::unique_ptr<Command> make_info_command() { return std::make_unique<InfoCommand>(); }

}  // namespace longshot
