// Models handed to other programs: what is written is read back bit for bit, and nothing of others is replaced.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/records.h"
#include "context.h"
#include "formats/safetensors.h"
#include "formats/scratch.h"
#include "references.h"
#include "run/checkpoint.h"
#include "run/export_hf.h"
#include "run/import_model.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::string weights_of(const fs::path& run) { return read_text(RunDir(run).checkpoint(0) / kModelFile); }

void import_fixture(const std::string& name, const fs::path& run) {
  import_hf(kFixtures / "hf" / name, RunDir(run), {.tokenizer = false});
}

TEST(ExportHf, ImportedAgainItIsBitEqual) {
  for (const char* name : {"bloom", "bloom-bf16", "bloom-sharded", "mpt", "mpt-f16", "gpt2", "gpt-neox",
                           "gpt-neox-serial", "gpt-neox-odd", "llama", "llama-bin"}) {
    const ScratchDir dir;
    import_fixture(name, dir / "first");
    export_hf({.run = dir / "first", .out = dir / "hf"});
    import_hf(dir / "hf", RunDir(dir / "second"), {.tokenizer = false});
    EXPECT_EQ(weights_of(dir / "first"), weights_of(dir / "second")) << name;
    EXPECT_EQ(read_checkpoint(find_checkpoint(dir / "first")).model.to_json(),
              read_checkpoint(find_checkpoint(dir / "second")).model.to_json())
        << name;
  }
}

TEST(ExportHf, TypeOfTheWeights) {
  const ScratchDir dir;
  import_fixture("bloom", dir / "run");
  for (const auto& [type, name] : {std::pair(DType::kF16, "float16"), std::pair(DType::kBF16, "bfloat16")}) {
    const HfExported done = export_hf({.run = dir / "run", .out = dir / name, .type = type});
    EXPECT_EQ(done.family, "bloom");
    const Safetensors written(dir / name / kModelFile);
    for (const NamedTensor& t : written.tensors()) EXPECT_EQ(t.dtype, type) << t.name;
    EXPECT_THAT(read_text(dir / name / "config.json"), HasSubstr(std::string("\"") + name + "\""));
    import_hf(dir / name, RunDir(dir / (name + std::string("-run"))), {.tokenizer = false});
  }
}

// Llama begins a text with <s> and ends it with </s>.
TEST(ExportHf, TheTokensAtBothEnds) {
  const ScratchDir dir;
  fs::copy(kFixtures / "hf/llama", dir / "model", fs::copy_options::recursive);
  const char* tokenizer = R"({"model": {"type": "BPE", "unk_token": "<unk>", "merges": [],
                                        "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "\u2581": 4}},
                              "added_tokens": [{"id": 1, "content": "<s>", "special": true},
                                               {"id": 2, "content": "</s>", "special": true}],
                              "pre_tokenizer": {"type": "Metaspace"},
                              "post_processor": {"type": "TemplateProcessing",
                                                 "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                                                 "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}}}})";
  dir.write("model/tokenizer.json", tokenizer);
  import_hf(dir / "model", RunDir(dir / "run"));
  export_hf({.run = dir / "run", .out = dir / "hf"});
  for (const char* file : {"config.json", "generation_config.json"}) {
    const Json json = read_json(dir / "hf" / file);
    EXPECT_EQ(json["bos_token_id"], 1) << file;
    EXPECT_EQ(json["eos_token_id"], 2) << file;
  }
  const Json json = read_json(dir / "hf/tokenizer_config.json");
  EXPECT_EQ(json["bos_token"], "<s>");
  EXPECT_EQ(json["eos_token"], "</s>");
}

TEST(ExportHf, WhatNoFormHoldsIsRefusedWithItsOptions) {
  const ScratchDir dir;
  for (const char* name : {"falcon-rw", "baichuan"}) {
    import_fixture(name, dir / name);
    EXPECT_THAT(error_of([&] { export_hf({.run = dir / name, .out = dir / "hf"}); }), HasSubstr("--")) << name;
  }
  import_fixture("gpt2", dir / "gpt2");
  EXPECT_THAT(error_of([&] { export_hf({.run = dir / "gpt2", .out = dir / "hf", .family = "bloom"}); }),
              HasSubstr("--position"));
  EXPECT_THAT(error_of([&] { export_hf({.run = dir / "gpt2", .out = dir / "hf", .family = "jais"}); }),
              HasSubstr("jais"));
  EXPECT_FALSE(fs::exists(dir / "hf"));
}

TEST(ExportHf, NothingOfOthersIsReplaced) {
  const ScratchDir dir;
  import_fixture("bloom", dir / "run");
  const auto error = [&] { return error_of([&] { export_hf({.run = dir / "run", .out = dir / "hf"}); }); };
  fs::create_directory(dir / "hf");
  dir.write("hf/mine.txt", "kept");
  EXPECT_THAT(error(), HasSubstr("is there already"));
  EXPECT_EQ(read_text(dir / "hf/mine.txt"), "kept");
  fs::remove_all(dir / "hf");
  for (const char* name : {"mine.txt", "config.json", "export/config.json"}) {  // no mark of ours beside it
    make_directories((dir / "hf.tmp" / name).parent_path());
    dir.write(std::string("hf.tmp/") + name, "kept");
    EXPECT_THAT(error(), HasSubstr("Move it away")) << name;
    EXPECT_EQ(read_text(dir / "hf.tmp" / name), "kept");
    fs::remove_all(dir / "hf.tmp");
  }
  make_directories(dir / "hf.tmp/export");
  dir.write("hf.tmp/.longshot-export", "");
  dir.write("hf.tmp/export/model.safetensors", "what a killed export left");
  dir.write("hf.tmp/export/config.json.tmp", "{");
  for (const char* name : {"export/README.md.tmp.my-notes", "export/mine.txt", "mine.txt"}) {
    dir.write(std::string("hf.tmp/") + name, "kept");
    EXPECT_THAT(error(), HasSubstr("Move it away")) << name;
    EXPECT_TRUE(fs::remove(dir / "hf.tmp" / name)) << "it stays";
  }
  EXPECT_NO_THROW(export_hf({.run = dir / "run", .out = dir / "hf"}));
  EXPECT_FALSE(fs::exists(dir / "hf.tmp"));
}

TEST(ExportHf, DamagedWeightsAreNotHandedOn) {
  const ScratchDir dir;
  import_fixture("bloom", dir / "run");
  const fs::path file = RunDir(dir / "run").checkpoint(0) / kModelFile;
  std::string bytes = read_text(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THAT(error_of([&] { export_hf({.run = dir / "run", .out = dir / "hf"}); }), HasSubstr("The file is damaged"));
  EXPECT_FALSE(fs::exists(dir / "hf"));
  EXPECT_FALSE(fs::exists(dir / "hf.tmp"));
}

TEST(ExportHf, AStopLeavesNothing) {
  const ScratchDir dir;
  import_fixture("bloom", dir / "run");
  const Watch stopping{.on_progress = [](double) {}, .should_stop = [] { return true; }};
  EXPECT_THROW(export_hf({.run = dir / "run", .out = dir / "hf", .watch = stopping}), Stopped);
  EXPECT_FALSE(fs::exists(dir / "hf"));
  EXPECT_FALSE(fs::exists(dir / "hf.tmp"));
}

}  // namespace
}  // namespace longshot
