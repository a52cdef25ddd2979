#include "targets.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/records.h"
#include "data/data_bin.h"
#include "data/hf_tokenizer.h"
#include "data/json_lines.h"
#include "data/prepare.h"
#include "data/token_file.h"
#include "data/tokenizers.h"
#include "experiment/plan.h"
#include "formats/fairseq.h"
#include "formats/gguf_families.h"
#include "formats/gguf_tensors.h"
#include "formats/safetensors.h"
#include "run/checkpoint.h"
#include "run/gguf_tokenizer.h"
#include "run/metrics.h"
#include "run/results.h"
#include "serve/completion_request.h"

namespace longshot::fuzz {
namespace {

void check(bool ok) {
  if (!ok) __builtin_trap();
}

// Without OutputFile's sync to the disk: there are thousands of these.
void write(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void read_all(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  for (const int32_t id : ids) check(id >= 0 && id < file.vocab_size());
  file.computed_hash();
}

void jsonl(std::string_view bytes) { json_text(bytes, "text", "input"); }

void use(const Tokenizer& tokenizer) {
  const std::string text = "It's a test:  \xE6\x97\xA5\xE6\x9C\xAC 12.5\n\xFF end";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids) check(id >= 0 && id < tokenizer.vocab_size());
  check(tokenizer.start_id() >= 0 && tokenizer.start_id() < tokenizer.vocab_size());
  tokenizer.decode(ids);
  check(tokenizer.cut(text) <= text.size());
}

void tokenizer_json(std::string_view bytes) { use(*hf_tokenizer(std::string(bytes), "input")); }
void sentencepiece_model(std::string_view bytes) { use(*sentencepiece_tokenizer(std::string(bytes), "input")); }
void dict(std::string_view bytes) { use(*word_tokenizer(std::string(bytes), "input")); }

// Two files in one input: two bytes (the length of the first), the first, the second.
std::pair<std::string_view, std::string_view> two_files(std::string_view bytes) {
  if (bytes.size() < 2) return {};
  const size_t length = static_cast<unsigned char>(bytes[0]) | static_cast<size_t>(static_cast<unsigned char>(bytes[1]))
                                                                   << 8;
  bytes.remove_prefix(2);
  return {bytes.substr(0, length), bytes.substr(std::min(length, bytes.size()))};
}

// vocab.json and merges.txt of GPT-2.
void gpt2_files(std::string_view bytes) {
  const auto [vocab, merges] = two_files(bytes);
  use(*hf_tokenizer(gpt2_json(std::string(vocab), std::string(merges), "input"), "input"));
}
void vocab_txt(std::string_view bytes) { use(*hf_tokenizer(bert_json(std::string(bytes), "input"), "input")); }

void results_json(std::string_view bytes) {
  const Results results = Results::from_json(parse_json(bytes, "input"), "input");
  check(Results::from_json(results.to_json(), "input").to_json() == results.to_json());  // what is accepted can be kept
}

void metrics_jsonl(std::string_view bytes) {
  const RunDir run(scratch() / "run");
  make_directories(scratch() / "run");
  write(run.metrics(), bytes);
  const size_t count = read_records(run.metrics()).size();
  int64_t before = -1;
  for (const MetricsRecord& record : read_metrics(run)) check(std::exchange(before, record.step) < record.step);
  append_record(run.metrics(), {{"step", 1}});
  check(read_records(run.metrics()).size() == count + 1);
}

void best_json(std::string_view bytes) {
  const RunDir run(scratch() / "run");
  make_directories(run.best().parent_path());
  write(run.best(), bytes);
  if (const auto best = read_best(run)) check(best->step >= 0 && best->valid_loss >= 0);
}

// A checkpoint's state.json beside files of eight zeros.
void state_json(std::string_view bytes) {
  const fs::path dir = scratch() / "checkpoint";
  make_directories(dir);
  for (const char* name : {kModelFile, kOptimizerFile, "tokenizer.byte.json"}) write(dir / name, std::string(8, '\0'));
  write(dir / kStateFile, bytes);
  CheckpointInfo info = read_checkpoint(dir);
  check(fs::path(info.tokenizer_file).filename() == info.tokenizer_file);
  info.model.validate();
}

// job.json of a preparation that was broken off while it encoded, with the identity that makes it be taken up.
void job_json(std::string_view bytes) {
  static Context context(1);
  const fs::path dir = scratch() / "job";
  PrepareConfig config;
  config.train = {(dir / "text.txt").string()}, config.tokenizer = "byte", config.out = (dir / "out").string();
  static const std::map<std::string, std::string> broken_off = [&] {
    make_directories(dir);
    write(dir / "text.txt", "The river runs to the sea.\n\nThe sea is not full.\n");
    bool encoding = false;
    PrepareHooks hooks;
    hooks.progress = [&](const PrepareProgress& p) { encoding = std::string_view(p.phase) == "encoding"; };
    hooks.stop = [&] { return encoding; };
    check(!prepare(context, config, hooks).finished);
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(dir / "out.partial")) {
      files[entry.path().filename().string()] = read_text(entry.path());
    }
    return files;
  }();
  fs::remove_all(dir / "out");
  make_directories(dir / "out.partial");
  for (const auto& [name, text] : broken_off) write(dir / "out.partial" / name, text);
  std::string job(bytes);
  try {
    Json json = parse_json(bytes, "input");
    if (json.is_object()) json["identity"] = parse_json(broken_off.at("job.json"), "job")["identity"];
    job = dump_json(json);
  } catch (const Error&) {  // not JSON: taken as it is
  }
  write(dir / "out.partial/job.json", job);
  prepare(context, config, {});
}

// A recipe of `compare`: what is accepted is read again from what is written.
void recipe_toml(std::string_view bytes) {
  const auto read_and_write = [](const std::string& text) {
    ExperimentConfig config;
    Options options;
    config.fields(options);
    options.load_toml_text(text, "input");
    return config.to_toml();
  };
  const std::string written = read_and_write(std::string(bytes));
  check(read_and_write(written) == written);
}

void token_file(std::string_view bytes) {
  write(scratch() / "x.tokens", bytes);
  read_all(TokenFile(scratch() / "x.tokens"));
}

void data_bin(std::string_view bytes) {
  const auto [idx, bin] = two_files(bytes);
  write(scratch() / "x.idx", idx);
  write(scratch() / "x.bin", bin);
  static const auto words = word_tokenizer("the 2\ncat 1\nsat 1\nmat 1\n", "dict");
  read_all(open_data_bin(scratch() / "x", *words));
}

// A checkpoint as far as it is one: its tensors are read whole.
void torch_file(std::string_view bytes) {
  write(scratch() / "x.pt", bytes);
  const TorchFile file(scratch() / "x.pt");
  const FairseqCheckpoint checkpoint(file);
  checkpoint.verify();
  for (const FairseqTensor& t : checkpoint.tensors()) {
    std::vector<float> out(static_cast<size_t>(element_count(t.shape).value_or(0)));
    copy_to_float(t, out);
  }
}

void safetensors(std::string_view bytes) {
  write(scratch() / "x.safetensors", bytes);
  const Safetensors file(scratch() / "x.safetensors");
  for (const NamedTensor& t : file.tensors()) {
    if (!is_floating(t.dtype)) continue;
    std::vector<float> out(t.bytes.size() / dtype_size(t.dtype));
    file.read(t.name, out);
  }
}

void gguf(std::string_view bytes) {
  write(scratch() / "x.gguf", bytes);
  const Gguf file(scratch() / "x.gguf");
  for (const GgufKey& key : file.keys()) {
    if (key.type == GgufType::kList && key.element == GgufType::kText) {
      check(file.texts(key.name)->size() == key.count);
    } else if (key.type == GgufType::kList && key.element != GgufType::kBool) {
      check(file.numbers(key.name)->size() == key.count);
    }
  }
  for (const GgufTensor& t : file.tensors()) {
    check(file.find(t.name) == &t);
    if (!is_readable(t.type)) continue;
    std::vector<float> out(static_cast<size_t>(element_count(t.shape).value_or(0)));
    read_blocks(t.type, t.bytes, out);
  }
}

// A model: its keys, its tokenizer, and where nothing is refused its weights as an import makes them.
void gguf_model(std::string_view bytes) {
  write(scratch() / "x.gguf", bytes);
  const auto file = std::make_shared<const Gguf>(scratch() / "x.gguf");
  try {
    if (const auto tokenizer = gguf_tokenizer(*file)) use(*tokenizer);
  } catch (const Error&) {
  }
  const GgufModel model = read_gguf_model(*file);
  require_supported(model);
  const SourceTensors tensors = open_gguf_tensors(file);
  for (const MadeTensor& t : make_ours(tensors, gguf_rules(model.config), model.config)) {
    size_t given = 0;
    t.give([&](std::span<const std::byte> part) { given += part.size(); });
    check(given == static_cast<size_t>(element_count(t.shape).value_or(0)) * dtype_size(t.dtype));
  }
}

// A body that any client may send. What is accepted is within its limits.
void completion_json(std::string_view bytes) {
  const auto accepted = [](auto&& parse) {
    try {
      parse();
    } catch (const Error& e) {
      check(e.kind() == Error::Kind::kUsage);  // the client's mistake, not ours
    }
  };
  accepted([&] {
    const CompletionRequest r = parse_completion(bytes);
    check(r.texts() >= 1 && r.texts() <= 64 && r.config.max_tokens >= 0 && r.config.context >= 0);
    r.config.validate();
  });
  accepted([&] { parse_tokenize(bytes); });
  accepted([&] {
    for (const int32_t id : parse_detokenize(bytes).ids) check(id >= 0);
  });
}

}  // namespace

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all{{"best_json", best_json},
                                                 {"completion_json", completion_json},
                                                 {"data_bin", data_bin},
                                                 {"dict", dict},
                                                 {"gguf", gguf},
                                                 {"gguf_model", gguf_model},
                                                 {"gpt2_files", gpt2_files},
                                                 {"job_json", job_json},
                                                 {"jsonl", jsonl},
                                                 {"metrics_jsonl", metrics_jsonl},
                                                 {"recipe_toml", recipe_toml},
                                                 {"results_json", results_json},
                                                 {"safetensors", safetensors},
                                                 {"sentencepiece_model", sentencepiece_model},
                                                 {"state_json", state_json},
                                                 {"token_file", token_file},
                                                 {"tokenizer_json", tokenizer_json},
                                                 {"torch_file", torch_file},
                                                 {"vocab_txt", vocab_txt}};
  return all;
}

void run(Target target, std::string_view bytes) {
  try {
    target(bytes);
  } catch (const Error&) {
  }
}

const fs::path& scratch() {
  static const fs::path path = [] {
    const fs::path memory = "/dev/shm";  // thousands of small files are synced to it
    const bool there = ::access(memory.c_str(), W_OK) == 0;
    fs::path made = (there ? memory : fs::temp_directory_path()) / ("longshot-fuzz-" + std::to_string(::getpid()));
    make_directories(made);
    return made;
  }();
  return path;
}

}  // namespace longshot::fuzz
