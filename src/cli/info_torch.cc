#include "cli/info_torch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/command.h"
#include "formats/fairseq.h"
#include "formats/torch_file.h"

namespace longshot {
namespace {

struct TensorRow {
  std::string name;
  const TorchTensor* tensor;
};

// Shared values make the tree as walked larger than the file: the walk ends after so many values, and where the names
// it made have several times the bytes of the file.
constexpr size_t kMaxRows = 100'000, kMaxEntries = 1000;

class TensorWalk {
 public:
  explicit TensorWalk(const TorchFile& file) : file_(file), bytes_left_(4 * file.file_bytes() + 65536) {
    visit("", file.root());
  }
  const std::vector<TensorRow>& rows() const { return rows_; }
  bool all() const { return rows_left_ > 0 && bytes_left_ > 0; }

 private:
  void visit(const std::string& name, PickleValue value) {
    bytes_left_ -= std::min(bytes_left_, name.size());
    if (rows_left_ > 0) --rows_left_;
    if (!all()) return;
    if (const TorchTensor* tensor = file_.tensor(value)) {
      rows_.push_back({name, tensor});
    } else if (const PickleItems* items = pickle_fields(value)) {
      for (size_t i = 0; i < items->size() && all(); ++i) visit(joined(name, (*items)[i].first), (*items)[i].second);
    } else if (const auto* sequence = value->get<PickleSequence>()) {
      for (size_t i = 0; i < sequence->elements.size() && all(); ++i) {
        visit(fmt::format("{}[{}]", name, i), sequence->elements[i]);
      }
    }
  }

  static std::string joined(const std::string& name, PickleValue key) {
    const std::string prefix = name.empty() ? "" : name + " / ";
    if (const auto text = pickle_text(key)) return prefix + shown(*text);
    if (const auto number = pickle_int(key)) return prefix + std::to_string(*number);
    return prefix + "?";
  }

  const TorchFile& file_;
  std::vector<TensorRow> rows_;
  size_t rows_left_ = kMaxRows, bytes_left_;
};

std::string summary(const TorchFile& file, PickleValue value) {
  if (file.tensor(value)) return "tensor";
  if (value->get<PickleNone>()) return "none";
  if (const auto* truth = value->get<bool>()) return *truth ? "true" : "false";
  if (const auto number = pickle_number(value)) return fmt::format("{}", *number);
  if (const auto text = pickle_text(value)) return fmt::format("\"{}\"", shown(*text));
  if (const auto* sequence = value->get<PickleSequence>()) return fmt::format("{} values", sequence->elements.size());
  if (const auto* record = value->get<PickleRecord>()) {
    return fmt::format("{}.{} (not executed)", shown(record->callable.module), shown(record->callable.name));
  }
  if (const PickleItems* items = pickle_fields(value)) return fmt::format("{} entries", items->size());
  return "other";
}

Json model_json(const FairseqCheckpoint& checkpoint) {
  const FairseqConfig& c = checkpoint.config();
  return {{"architecture", c.architecture},
          {"layers", c.layers},
          {"dim", c.dim},
          {"heads", c.heads},
          {"ffn", c.ffn},
          {"vocab", c.vocab},
          {"train_length", c.length},
          {"updates", c.updates},
          {"activation", c.activation},
          {"final_norm", c.final_norm},
          {"tied", c.tied || c.is_adaptive()},
          {"cutoffs", c.cutoffs},
          {"adaptive_factor", c.is_adaptive() ? Json(c.adaptive_factor) : Json()},
          {"dropout", c.dropout},
          {"attention_dropout", c.attention_dropout},
          {"activation_dropout", c.activation_dropout},
          {"adaptive_dropout", c.adaptive_dropout},
          {"parameters", checkpoint.parameter_count()}};
}

const char* container_name(const TorchFile& file) {
  return file.container() == TorchFile::Container::kZip ? "zip" : "stream";
}

void print_json(const TorchFile& file, const TensorWalk& walk, const Json& model, const std::string& why_no_model) {
  Json tensors = Json::array();
  for (const TensorRow& row : walk.rows()) {
    tensors.push_back({{"name", row.name}, {"dtype", dtype_name(row.tensor->dtype)}, {"shape", row.tensor->shape}});
  }
  Json all{{"file", file.path().string()}, {"format", "pytorch"}, {"container", container_name(file)},
           {"bytes", file.file_bytes()},   {"fairseq", model},    {"tensors", tensors}};
  if (!walk.all()) all["tensors_left_out"] = true;
  if (!why_no_model.empty()) all["cannot_import"] = why_no_model;
  show_json(all, 2);
}

void print_text(const TorchFile& file, const TensorWalk& walk, const Json& model, const std::string& why_no_model) {
  fmt::print("{}: PyTorch file ({} container), {} bytes, {} tensors\n", printable(file.path().string()),
             container_name(file), file.file_bytes(), walk.rows().size());
  if (const PickleItems* items = pickle_fields(file.root())) {
    for (const auto& [key, value] : std::span(*items).first(std::min(items->size(), kMaxEntries))) {
      if (file.tensor(value)) continue;
      fmt::print("  {:<22} {}\n", shown(pickle_text(key).value_or("?")), summary(file, value));
    }
  }
  if (!model.is_null()) {
    fmt::print("\nfairseq language model (the file does not say which position method it was trained with)\n");
    for (const auto& [key, value] : model.items()) {
      fmt::print("  {:<22} {}\n", key, printable(value.is_string() ? value.get<std::string>() : dump_json(value)));
    }
  } else if (!why_no_model.empty()) {
    fmt::print("\ncannot be imported: {}\n", printable(why_no_model));
  }
  if (!walk.rows().empty()) fmt::print("\n");
  for (const TensorRow& row : walk.rows()) {
    fmt::print("  {:<60} {:<5} {}\n", printable(row.name), dtype_name(row.tensor->dtype),
               shape_text(row.tensor->shape));
  }
  if (!walk.all()) fmt::print("  (more are left out: their names have many times the bytes of the file)\n");
}

}  // namespace

bool print_torch_info(const fs::path& path, bool json) {
  if (!looks_like_torch_file(path)) return false;
  const TorchFile file(path);
  Json model;
  std::string why_no_model;
  if (FairseqCheckpoint::is_one(file)) {
    try {
      model = model_json(FairseqCheckpoint(file));
    } catch (const Error& e) {
      why_no_model = e.what();  // what is inside can be shown all the same
    }
  }
  const TensorWalk walk(file);
  json ? print_json(file, walk, model, why_no_model) : print_text(file, walk, model, why_no_model);
  return true;
}

}  // namespace longshot
