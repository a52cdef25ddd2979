#include "cli/info_gguf.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/info_foreign.h"
#include "formats/gguf_families.h"
#include "run/gguf_tokenizer.h"

namespace longshot {
namespace {

struct Found {
  std::string family;
  ModelConfig config{};
  std::vector<std::string> refused{};
  std::string tokenizer = "none";
};

// What no import would take is refused here too, but shown.
Found look_at(const Gguf& file) {
  Found found{.family = file.text("general.architecture").value_or("unknown")};
  try {
    const GgufModel model = read_gguf_model(file);
    found.family = model.family->name;
    found.config = model.config;
    found.refused = model.keys.refusals();
  } catch (const Error& e) {
    found.refused.emplace_back(e.what());
  }
  try {
    if (const auto tokenizer = gguf_tokenizer(file))
      found.tokenizer = fmt::format("{}, {} entries", tokenizer->name(), tokenizer->vocab_size());
  } catch (const Error& e) {
    found.tokenizer = fmt::format("not supported: {}", e.what());
  }
  return found;
}

// In the file's order; of names that are printed alike the first.
Json key_values(const Gguf& file) {
  Json::object_t values;
  std::unordered_set<std::string> names;
  for (const GgufKey& key : file.keys()) {
    std::string name = printable(key.name);
    if (names.insert(name).second) values.emplace_back(std::move(name), Json(gguf_value(file, key)));
  }
  return values;
}

std::string value_text(const Json& value) {
  if (value.is_object()) return fmt::format("{} of {}", value["count"].dump(), value["list"].get<std::string>());
  return value.is_string() ? shown(value.get<std::string>()) : dump_json(value);
}

}  // namespace

bool print_gguf_info(const fs::path& path, bool json) {
  if (!Gguf::is_one(path)) return false;
  const Gguf file(path);
  const Found found = look_at(file);
  int64_t parameters = 0;
  for (const GgufTensor& t : file.tensors()) parameters += element_count(t.shape).value_or(0);
  const ForeignModel foreign{found.family, parameters, found.refused, found.config};
  const Json keys = key_values(file);
  if (json) {
    Json all = foreign_json(foreign);
    all["tokenizer"] = found.tokenizer;
    all["keys"] = keys;
    all["tensors"] = Json::array();
    for (const GgufTensor& t : file.tensors())
      all["tensors"].push_back({{"name", printable(t.name)}, {"type", ggml_layout(t.type).name}, {"shape", t.shape}});
    show_json(all, 2);
    return true;
  }
  print_foreign(foreign);
  fmt::print("tokenizer     {}\n", printable(found.tokenizer));
  for (const auto& [key, value] : keys.items()) fmt::print("{} = {}\n", key, value_text(value));
  for (const GgufTensor& t : file.tensors())
    fmt::print("{:<5} {:<16} {}\n", ggml_layout(t.type).name, shape_text(t.shape), printable(t.name));
  return true;
}

}  // namespace longshot
