#include "formats/fairseq.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;

// fairseq's options, by their own names. Newer files hold them in cfg["model"], older ones in args.
class Settings {
 public:
  Settings(const TorchFile& file, const PickleItems& items, const PickleItems* task)
      : file_(file.path().string()), items_(items), task_(task) {}

  PickleValue find(std::string_view key) const {
    const PickleValue value = find_field(items_, key);
    return value && !value->get<PickleNone>() ? value : nullptr;
  }
  int64_t size(std::string_view key) const {
    const PickleValue value = find(key);
    require(value, "{}: the checkpoint's configuration lacks {}. Is it a language model of fairseq's?", file_, key);
    const auto number = pickle_int(value);
    require(number && *number > 0 && *number < kMaxExtent, "{}: {} is not a whole number above 0", file_, key);
    return *number;
  }
  int64_t size(std::string_view key, int64_t absent) const { return find(key) ? size(key) : absent; }
  double number(std::string_view key, double absent) const {
    const PickleValue value = find(key);
    if (!value) return absent;
    const auto number = pickle_number(value);
    require(number && std::isfinite(*number), "{}: {} is not a number", file_, key);
    return *number;
  }
  double rate(std::string_view key, double absent) const {
    const double value = number(key, absent);
    require(value >= 0 && value < 1, "{}: {} is {}, not a rate from 0 to 1", file_, key, value);
    return value;
  }
  bool flag(std::string_view key) const {
    const PickleValue value = find(key);
    if (!value) return false;
    if (const auto* truth = value->get<bool>()) return *truth;
    const auto number = pickle_int(value);
    require(number && (*number == 0 || *number == 1), "{}: {} is neither true nor false", file_, key);
    return *number == 1;
  }
  std::string text(std::string_view key, std::string_view absent) const {
    const PickleValue value = find(key);
    if (!value) return std::string(absent);
    const auto found = pickle_text(value);
    require(found.has_value(), "{}: {} is not text", file_, key);
    return std::string(*found);
  }
  // "20000,60000"; nothing where it is absent or empty.
  std::vector<int64_t> cutoffs(std::string_view key) const {
    std::vector<int64_t> values;
    std::string_view rest = find(key) ? pickle_text(find(key)).value_or("?") : "";
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      int64_t value = 0;
      const auto end = std::from_chars(word.data(), word.data() + word.size(), value);
      require(end.ec == std::errc() && end.ptr == word.data() + word.size() && value < kMaxExtent &&
                  value > (values.empty() ? 0 : values.back()),
              "{}: {} is not a list of ascending whole numbers such as \"20000,60000\"", file_, key);
      values.push_back(value);
    }
    return values;
  }
  int64_t task_size(std::string_view key) const {
    const PickleValue value = task_ ? find_field(*task_, key) : nullptr;
    return value ? pickle_int(value).value_or(0) : 0;
  }

 private:
  std::string file_;
  const PickleItems& items_;
  const PickleItems* task_;
};

const PickleItems* fields_at(const PickleItems* items, std::string_view key) {
  const PickleValue value = items ? find_field(*items, key) : nullptr;
  return value ? pickle_fields(value) : nullptr;
}

Settings settings_of(const TorchFile& file) {
  const PickleItems* top = pickle_fields(file.root());
  const PickleItems* cfg = fields_at(top, "cfg");
  if (const PickleItems* model = fields_at(cfg, "model")) return {file, *model, fields_at(cfg, "task")};
  const PickleItems* args = fields_at(top, "args");
  require(args, "{}: has neither a cfg with a model nor args, so it says nothing about the model's shape",
          file.path().string());
  return {file, *args, args};
}

int64_t updates_of(const TorchFile& file) {
  const PickleItems* top = pickle_fields(file.root());
  const PickleValue history = top ? find_field(*top, "optimizer_history") : nullptr;
  const auto* list = history ? history->get<PickleSequence>() : nullptr;
  const PickleItems* last = list && !list->elements.empty() ? pickle_fields(list->elements.back()) : nullptr;
  const PickleValue updates = last ? find_field(*last, "num_updates") : nullptr;
  const int64_t count = updates ? pickle_int(updates).value_or(0) : 0;
  require(count >= 0 && count <= int64_t{1} << 53, "{}: num_updates is {}, no number of updates", file.path().string(),
          count);
  return count;
}

void refuse_other_models(const TorchFile& file, const Settings& s) {
  for (const char* key : {"character_embeddings", "layernorm_embedding", "decoder_learned_pos"}) {
    require(!s.flag(key), "{}: the model uses {}, which this program does not have", file.path().string(), key);
  }
  require(s.number("base_layers", 0) == 0 && !s.find("decoder_layers_to_keep"),
          "{}: the model uses base_layers or decoder_layers_to_keep, which this program does not have",
          file.path().string());
  const int64_t dim = s.size("decoder_embed_dim");
  for (const char* key : {"decoder_input_dim", "decoder_output_dim"}) {
    require(s.size(key, dim) == dim, "{}: {} is {} but decoder_embed_dim is {}; this program has one width only",
            file.path().string(), key, s.size(key, dim), dim);
  }
}

void read_adaptive(const TorchFile& file, const Settings& s, FairseqConfig& config) {
  const std::string name = file.path().string();
  const auto output = s.cutoffs("adaptive_softmax_cutoff");
  const auto input = s.flag("adaptive_input") ? s.cutoffs("adaptive_input_cutoff") : std::vector<int64_t>{};
  if (input.empty() && output.empty()) return;
  require(input == output,
          "{}: the adaptive input's cutoffs are [{}] but the adaptive softmax's [{}]; they must be equal", name,
          fmt::join(input, ", "), fmt::join(output, ", "));
  config.adaptive_factor = s.number("adaptive_input_factor", 4);
  const double output_factor = s.number("adaptive_softmax_factor", 4);
  require(config.adaptive_factor >= 1 && config.adaptive_factor == output_factor,
          "{}: the adaptive factors {} (input) and {} (softmax) must be equal and at least 1", name,
          config.adaptive_factor, output_factor);
  require(s.flag("tie_adaptive_weights") && s.flag("tie_adaptive_proj"),
          "{}: the adaptive softmax does not share its words and projections with the input "
          "(tie_adaptive_weights {}, "
          "tie_adaptive_proj {}); this program has only the tied kind",
          name, s.flag("tie_adaptive_weights"), s.flag("tie_adaptive_proj"));
  config.cutoffs = input;
  config.adaptive_dropout = s.rate("adaptive_softmax_dropout", 0);
}

FairseqConfig read_config(const TorchFile& file) {
  const Settings s = settings_of(file);
  refuse_other_models(file, s);
  FairseqConfig config;
  config.architecture = s.text("_name", s.text("arch", ""));
  config.layers = s.size("decoder_layers");
  config.dim = s.size("decoder_embed_dim");
  config.heads = s.size("decoder_attention_heads");
  config.ffn = s.size("decoder_ffn_embed_dim");
  require(config.dim % config.heads == 0, "{}: {} heads do not divide the width {}", file.path().string(), config.heads,
          config.dim);
  config.length = s.size("tokens_per_sample", s.task_size("tokens_per_sample"));
  config.updates = updates_of(file);
  config.activation = s.text("activation_fn", "relu");
  config.final_norm = !s.flag("no_decoder_final_norm");
  config.embed_scale = !s.flag("no_scale_embedding");
  config.tied = s.flag("share_decoder_input_output_embed");
  config.dropout = s.rate("dropout", 0.1);
  config.attention_dropout = s.rate("attention_dropout", 0);
  config.activation_dropout = s.rate("activation_dropout", 0);
  if (config.activation_dropout == 0) config.activation_dropout = s.rate("relu_dropout", 0);  // its name of old
  read_adaptive(file, s, config);
  return config;
}

}  // namespace

// Takes the tensors of state["model"] one by one; what is left at the end is an error.
class FairseqMapper {
 public:
  FairseqMapper(const TorchFile& file, FairseqCheckpoint& out)
      : file_(file.path().string()), bytes_(file.file_bytes()), out_(out), config_(out.config_) {
    const PickleItems* model = fields_at(pickle_fields(file.root()), "model");
    require(model, "{}: has no \"model\", so it is not a checkpoint of fairseq's", file_);
    for (const auto& [key, value] : *model) {
      const auto name = pickle_text(key);
      require(name.has_value(), "{}: a tensor of the model has no name", file_);
      const TorchTensor* tensor = file.tensor(value);
      require(tensor, "{}: {} is not a tensor", file_, shown(*name));
      require(left_.emplace(current_name(std::string(*name)), *tensor).second, "{}: has {} twice", file_, shown(*name));
    }
  }

  void run() {
    drop_dummies();
    if (version_ <= 2) config_.final_norm = false;  // such models had none, whatever their options say
    config_.is_adaptive() ? map_adaptive() : map_plain();
    for (int64_t i = 0; i < config_.layers; ++i) map_layer(i);
    if (config_.final_norm) map_norm("final_norm", "decoder.layer_norm");
    if (left_.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : left_) {
      if (names.size() < 5) names.push_back(shown(name));
    }
    fail("{}: {} tensors have no place in a model of this configuration, e.g. {}", file_, left_.size(),
         fmt::join(names, ", "));
  }

 private:
  // Layer norms had numbers once: 0 attention's, 2 the feed-forward part's.
  static std::string current_name(std::string name) {
    for (const auto& [old_name, new_name] :
         {std::pair<std::string_view, std::string_view>{".layer_norms.0.", ".self_attn_layer_norm."},
          {".layer_norms.2.", ".final_layer_norm."}}) {
      if (const size_t at = name.find(old_name); at != std::string::npos) name.replace(at, old_name.size(), new_name);
    }
    return name;
  }

  void drop_dummies() {
    if (const auto version = left_.find("decoder.version"); version != left_.end()) {
      std::vector<float> value(static_cast<size_t>(version->second.size()));
      copy_to_float(version->second, value);
      require(value.size() == 1, "{}: decoder.version has {} elements instead of one", file_, value.size());
      version_ = value[0];
      left_.erase(version);
    }
    left_.erase("decoder.embed_positions.weights");  // a table of sinusoids
    std::erase_if(left_, [](const auto& entry) { return entry.first.ends_with("._float_tensor"); });
  }

  TorchTensor take(const std::string& key, const Shape& shape) {
    auto found = left_.extract(key);
    require(!found.empty(), "{}: has no tensor {}, which its configuration asks for", file_, key);
    const TorchTensor& tensor = found.mapped();
    require(tensor.shape == shape, "{}: {} has the shape {}, but the configuration asks for {}", file_, key,
            shape_text(tensor.shape), shape_text(shape));
    require(is_floating(tensor.dtype), "{}: {} has elements of type {}, not floating-point", file_, key,
            dtype_name(tensor.dtype));
    taken_ += static_cast<uint64_t>(tensor.size()) * dtype_size(tensor.dtype);
    require(taken_ <= 2 * bytes_,
            "{}: its tensors have more than {} bytes, the file only {}: they repeat what it holds", file_, 2 * bytes_,
            bytes_);
    return std::move(found.mapped());
  }

  void map(std::string name, const Shape& shape, const std::string& key) {
    out_.tensors_.push_back({std::move(name), shape, {take(key, shape)}});
  }

  void map_norm(const std::string& name, const std::string& key) {
    map(name + ".weight", {config_.dim}, key + ".weight");
    map(name + ".bias", {config_.dim}, key + ".bias");
  }

  void map_linear(const std::string& name, const std::string& key, int64_t out, int64_t in) {
    map(name + ".weight", {out, in}, key + ".weight");
    map(name + ".bias", {out}, key + ".bias");
  }

  // [q; k; v] below each other: three tensors, or one in files from before mid-2019.
  void map_qkv(const std::string& name, const std::string& attention) {
    const int64_t dim = config_.dim;
    if (left_.contains(attention + "in_proj_weight")) {
      map(name + ".weight", {3 * dim, dim}, attention + "in_proj_weight");
      map(name + ".bias", {3 * dim}, attention + "in_proj_bias");
      return;
    }
    FairseqTensor weight{name + ".weight", {3 * dim, dim}, {}}, bias{name + ".bias", {3 * dim}, {}};
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      weight.parts.push_back(take(attention + part + ".weight", {dim, dim}));
      bias.parts.push_back(take(attention + part + ".bias", {dim}));
    }
    out_.tensors_.push_back(std::move(weight));
    out_.tensors_.push_back(std::move(bias));
  }

  void map_layer(int64_t index) {
    const std::string ours = fmt::format("layers.{}.", index), theirs = fmt::format("decoder.layers.{}.", index);
    map_norm(ours + "attention_norm", theirs + "self_attn_layer_norm");
    map_qkv(ours + "attention.qkv", theirs + "self_attn.");
    map_linear(ours + "attention.out", theirs + "self_attn.out_proj", config_.dim, config_.dim);
    map_norm(ours + "ffn_norm", theirs + "final_layer_norm");
    map_linear(ours + "ffn.in", theirs + "fc1", config_.ffn, config_.dim);
    map_linear(ours + "ffn.out", theirs + "fc2", config_.dim, config_.ffn);
  }

  int64_t rows_of(const std::string& key) const {
    const auto found = left_.find(key);
    require(found != left_.end() && !found->second.shape.empty(), "{}: has no matrix {}", file_, key);
    return found->second.shape[0];
  }

  void map_plain() {
    const std::string words = "decoder.embed_tokens.weight";
    config_.vocab = rows_of(words);
    const Shape shape{config_.vocab, config_.dim};
    map("embed.weight", shape, words);
    const std::string output =
        left_.contains("decoder.embed_out") ? "decoder.embed_out" : "decoder.output_projection.weight";
    if (!config_.tied) {
      map("output.weight", shape, output);
    } else if (left_.contains(output)) {
      tie(words, out_.tensors_.back().parts[0], output);
    }
  }

  // Band k: words [size, dim / factor^k] and their projection [dim, dim / factor^k], shared with the softmax;
  // the head of the softmax uses band 0's words without a projection and has one more row for each further
  // band.
  void map_adaptive() {
    const size_t bands = config_.cutoffs.size() + 1;
    const std::string input = "decoder.embed_tokens.embeddings.", softmax = "decoder.adaptive_softmax.";
    const auto words_key = [&](size_t band) { return fmt::format("{}{}.0.weight", input, band); };
    config_.vocab = config_.cutoffs.back() + rows_of(words_key(bands - 1));
    require(left_.erase(softmax + "version") == 1,
            "{}: its adaptive softmax is of a version that fairseq itself no longer reads", file_);
    for (size_t k = 0; k < bands; ++k) {
      const int64_t size = config_.band_end(k) - config_.band_begin(k), dim = config_.band_dim(k);
      require(dim > 0, "{}: band {} would have vectors of no elements (width {}, factor {})", file_, k, config_.dim,
              config_.adaptive_factor);
      const std::string projection_key = fmt::format("{}{}.1.weight", input, k);
      map(fmt::format("embed.band{}.weight", k), {size, dim}, words_key(k));
      const TorchTensor words = out_.tensors_.back().parts[0];
      map(fmt::format("embed.band{}.projection", k), {config_.dim, dim}, projection_key);
      const TorchTensor projection = out_.tensors_.back().parts[0];
      if (k == 0) {
        tie(words_key(k), words, softmax + "head.word_proj.weight");
      } else {
        tie(projection_key, projection, fmt::format("{}tail.{}.0.weight", softmax, k - 1));
        tie(words_key(k), words, fmt::format("{}tail.{}.2.weight", softmax, k - 1));
      }
    }
    map("output.clusters", {static_cast<int64_t>(bands) - 1, config_.dim}, softmax + "head.class_proj.weight");
  }

  void tie(const std::string& first, const TorchTensor& tensor, const std::string& second) {
    out_.ties_.push_back({first, second, tensor, take(second, tensor.shape)});
  }

  std::string file_;
  uint64_t bytes_, taken_ = 0;  // of the file, of the tensors taken so far
  FairseqCheckpoint& out_;
  FairseqConfig& config_;
  float version_ = 1;  // of the decoder, where the file does not say
  std::map<std::string, TorchTensor> left_;
};

int64_t FairseqConfig::band_dim(size_t band) const {
  return static_cast<int64_t>(
      std::floor(static_cast<double>(dim) / std::pow(adaptive_factor, static_cast<double>(band))));
}

FairseqCheckpoint::FairseqCheckpoint(const TorchFile& file) : file_(file), config_(read_config(file)) {
  FairseqMapper(file, *this).run();
}

bool FairseqCheckpoint::is_one(const TorchFile& file) {
  const PickleItems* top = pickle_fields(file.root());
  return top && fields_at(top, "model") && (fields_at(top, "cfg") || fields_at(top, "args"));
}

int64_t FairseqCheckpoint::parameter_count() const {
  int64_t count = 0;
  for (const FairseqTensor& t : tensors_) count += *element_count(t.shape);
  return count;
}

void FairseqCheckpoint::verify(const Watch& watch) const {
  file_.verify_checksums(watch);
  for (const Tie& tie : ties_) {
    require(same_content(tie.a, tie.b), "{}: {} and {} should be one tensor, but their values differ",
            file_.path().string(), tie.first, tie.second);
  }
}

void copy_to_float(const FairseqTensor& tensor, std::span<float> out) {
  size_t at = 0;
  for (const TorchTensor& part : tensor.parts) {
    const auto size = static_cast<size_t>(part.size());
    require(size <= out.size() - at, "{} of shape {} does not have {} elements", tensor.name, shape_text(tensor.shape),
            out.size());
    copy_to_float(part, out.subspan(at, size));
    at += size;
  }
  require(at == out.size(), "{} of shape {} does not have {} elements", tensor.name, shape_text(tensor.shape),
          out.size());
  const auto wrong = std::find_if(out.begin(), out.end(), [](float v) { return !std::isfinite(v); });
  require(wrong == out.end(), "{}: element {} is {}. The checkpoint is damaged, or its training had failed.",
          tensor.name, wrong - out.begin(), wrong == out.end() ? 0.0f : *wrong);
}

}  // namespace longshot
