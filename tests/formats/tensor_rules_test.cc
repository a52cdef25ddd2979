#include "formats/tensor_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "formats/scratch.h"
#include "model/transformer.h"

namespace longshot {
namespace {

using testing::HasSubstr;

// Tensors in memory, each number different.
class Numbers {
 public:
  explicit Numbers(std::string origin = "made.safetensors") : tensors_(std::move(origin)) {}
  void add(const std::string& name, const Shape& shape) {
    auto& values = values_[name];
    values.resize(static_cast<size_t>(*element_count(shape)));
    std::iota(values.begin(), values.end(), next_);
    next_ += static_cast<float>(values.size());
    tensors_.add(source_tensor(NamedTensor{name, DType::kF32, shape, std::as_bytes(std::span(values))}));
  }
  const SourceTensors& tensors() const { return tensors_; }
  float at(const std::string& name, size_t index) const { return values_.at(name).at(index); }

 private:
  SourceTensors tensors_;
  std::map<std::string, std::vector<float>> values_;
  float next_ = 1;
};

std::vector<float> floats(const MadeTensor& tensor) {
  std::vector<float> all;
  tensor.give([&](std::span<const std::byte> bytes) {
    std::vector<float> part(bytes.size() / dtype_size(tensor.dtype));
    convert_to_float(tensor.dtype, bytes, part);
    all.insert(all.end(), part.begin(), part.end());
  });
  return all;
}

const MadeTensor& named(const std::vector<MadeTensor>& tensors, const std::string& name) {
  for (const MadeTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw Error("no tensor " + name);
}

ModelConfig small() {
  ModelConfig c;
  c.layers = 2, c.dim = 12, c.heads = 3, c.ffn = 20, c.vocab = 7;
  return c;
}

// A family that uses every arrangement.
TensorRules every_rule(const ModelConfig& c) {
  TensorRules r;
  r.rules.push_back({"embed.weight", {{"x.emb.weight"}}});
  r.optional_prefix = "x.";
  r.skipped = {".mask"};
  r.copies = {{"head.weight", "x.emb.weight"}};
  add_norm(r.rules, c, "layers.{}.attention_norm", "x.{}.n1");
  add_linear(r.rules, c, "layers.{}.attention.qkv", "x.{}.qkv", Arrangement::kQkvByHead);
  r.rules.push_back({"layers.{}.attention.out.weight", {{"x.{}.o.weight", Arrangement::kRotaryPairs}}});
  r.rules.push_back({"layers.{}.attention.out.bias", {{"x.{}.o.bias"}}});
  add_norm(r.rules, c, "layers.{}.ffn_norm", "x.{}.n2");
  add_linear(r.rules, c, "layers.{}.ffn.in", "x.{}.up", Arrangement::kTransposed);
  r.rules.push_back({"layers.{}.ffn.out.weight",
                     {{"x.{}.d1.weight", Arrangement::kSame, 5}, {"x.{}.d2.weight", Arrangement::kSame, 7}}});
  r.rules.push_back({"layers.{}.ffn.out.bias", {{"x.{}.d.bias"}}});
  add_norm(r.rules, c, "final_norm", "x.nf");
  return r;
}

Numbers their_tensors(const ModelConfig& c, const std::string& prefix) {
  Numbers n;
  n.add(prefix + "emb.weight", {c.vocab, c.dim});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string at = prefix + std::to_string(i);
    for (const char* norm : {".n1", ".n2"}) {
      n.add(at + norm + ".weight", {c.dim});
      n.add(at + norm + ".bias", {c.dim});
    }
    n.add(at + ".qkv.weight", {3 * c.dim, c.dim});
    n.add(at + ".qkv.bias", {3 * c.dim});
    n.add(at + ".o.weight", {c.dim, c.dim});
    n.add(at + ".o.bias", {c.dim});
    n.add(at + ".up.weight", {c.dim, c.ffn});
    n.add(at + ".up.bias", {c.ffn});
    n.add(at + ".d1.weight", {5, c.ffn});
    n.add(at + ".d2.weight", {7, c.ffn});
    n.add(at + ".d.bias", {c.dim});
    n.add(at + ".mask", {2, 2});
  }
  n.add(prefix + "nf.weight", {c.dim});
  n.add(prefix + "nf.bias", {c.dim});
  return n;
}

TEST(TensorRules, RowsOfEveryArrangement) {
  const ModelConfig c = small();
  const int64_t heads = c.heads, head = c.head_dim(), dim = c.dim;
  const Numbers theirs = their_tensors(c, "x.");
  const std::vector<MadeTensor> made = make_ours(theirs.tensors(), every_rule(c), c);
  EXPECT_EQ(made.size(), Transformer(c, false).parameters().tensors().size());

  const std::vector<float> qkv = floats(named(made, "layers.1.attention.qkv.weight"));
  const std::vector<float> qkv_bias = floats(named(made, "layers.1.attention.qkv.bias"));
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < head; ++d) {
        const int64_t ours = (part * heads + h) * head + d, their = (h * 3 + part) * head + d;
        EXPECT_EQ(qkv_bias[static_cast<size_t>(ours)], theirs.at("x.1.qkv.bias", static_cast<size_t>(their)));
        EXPECT_EQ(qkv[static_cast<size_t>(ours * dim + 5)],
                  theirs.at("x.1.qkv.weight", static_cast<size_t>(their * dim + 5)));
      }
    }
  }
  const std::vector<float> out = floats(named(made, "layers.0.attention.out.weight"));
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t d = 0; d < head; ++d) {
      const int64_t pair = d % (head / 2), second = d / (head / 2);
      const int64_t their = h * head + 2 * pair + second;
      EXPECT_EQ(out[static_cast<size_t>((h * head + d) * dim)],
                theirs.at("x.0.o.weight", static_cast<size_t>(their * dim)));
    }
  }
  const std::vector<float> up = floats(named(made, "layers.1.ffn.in.weight"));
  for (int64_t o = 0; o < c.ffn; ++o) {
    for (int64_t i = 0; i < dim; ++i)
      EXPECT_EQ(up[static_cast<size_t>(o * dim + i)], theirs.at("x.1.up.weight", static_cast<size_t>(i * c.ffn + o)));
  }
  const std::vector<float> down = floats(named(made, "layers.0.ffn.out.weight"));
  EXPECT_EQ(down[static_cast<size_t>(4 * c.ffn)], theirs.at("x.0.d1.weight", static_cast<size_t>(4 * c.ffn)));
  EXPECT_EQ(down[static_cast<size_t>(5 * c.ffn)], theirs.at("x.0.d2.weight", 0));
}

TEST(TensorRules, BackwardsTheyGiveWhatTheyTook) {
  const ModelConfig c = small();
  const Numbers theirs = their_tensors(c, "x.");
  const std::vector<MadeTensor> made = make_ours(theirs.tensors(), every_rule(c), c);
  std::vector<std::vector<float>> kept;
  SourceTensors ours("run");
  for (const MadeTensor& t : made) kept.push_back(floats(t));
  for (size_t i = 0; i < made.size(); ++i)
    ours.add(source_tensor(NamedTensor{made[i].name, DType::kF32, made[i].shape, std::as_bytes(std::span(kept[i]))}));
  size_t compared = 0;
  for (const MadeTensor& t : make_theirs(ours, every_rule(c), c)) {
    const std::vector<float> values = floats(t);
    EXPECT_EQ(t.shape, theirs.tensors().find(t.name)->shape) << t.name;
    for (size_t i = 0; i < values.size(); ++i, ++compared) ASSERT_EQ(values[i], theirs.at(t.name, i)) << t.name;
  }
  EXPECT_EQ(compared, static_cast<size_t>(Transformer(c, false).parameters().count()));
}

TEST(TensorRules, APrefixMayBeMissing) {
  const ModelConfig c = small();
  const Numbers theirs = their_tensors(c, "");
  EXPECT_NO_THROW(make_ours(theirs.tensors(), every_rule(c), c));
}

TEST(TensorRules, WhatDoesNotFitIsNamed) {
  const ModelConfig c = small();
  const auto error = [&](const Numbers& numbers, const ModelConfig& config) {
    return error_of([&] { make_ours(numbers.tensors(), every_rule(config), config); });
  };
  Numbers more = their_tensors(c, "x.");
  more.add("x.0.rotor.weight", {3});
  EXPECT_THAT(error(more, c), HasSubstr("'x.0.rotor.weight' of shape [3] has no place"));

  Numbers differ = their_tensors(c, "x.");
  differ.add("head.weight", {c.vocab, c.dim});
  EXPECT_THAT(error(differ, c), HasSubstr("'head.weight' and 'x.emb.weight' are one matrix, but they differ"));

  ModelConfig deeper = c;
  deeper.layers = 3;
  EXPECT_THAT(error(their_tensors(c, "x."), deeper), HasSubstr("has no tensor 'x.2.n1.weight'"));
  ModelConfig wider = c;
  wider.vocab = 8;
  EXPECT_THAT(error(their_tensors(c, "x."), wider),
              HasSubstr("has the shape [7, 12], the configuration asks for [8, 12]"));
}

TEST(TensorRules, AnotherTypeAndNumbersThatAreNotFinite) {
  ModelConfig c = small();
  const Numbers theirs = their_tensors(c, "x.");
  const std::vector<MadeTensor> halves = make_ours(theirs.tensors(), every_rule(c), c, DType::kF16);
  const std::vector<float> values = floats(named(halves, "embed.weight"));
  EXPECT_EQ(named(halves, "embed.weight").dtype, DType::kF16);
  EXPECT_EQ(values[3], theirs.at("x.emb.weight", 3));  // small whole numbers are exact

  const float large[] = {1, 70000};
  const SourceTensor source = source_tensor(NamedTensor{"w", DType::kF32, {2}, std::as_bytes(std::span(large))});
  MadeTensor made{"w", DType::kF16, {2}, {{&source, 0, 2, 1, 1, 1, 2}}};
  EXPECT_THAT(error_of([&] { floats(made); }),
              HasSubstr("'w' holds a number that is not finite, or too large for F16"));
  made.dtype = DType::kBF16;
  EXPECT_NEAR(floats(made)[1], 70000, 70000 * 0x1p-8);
}

// Rows that go through the buffer several times.
TEST(TensorRules, LargeTensors) {
  const int64_t rows = 3000, cols = 700;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  std::iota(values.begin(), values.end(), 0.0f);
  const SourceTensor source = source_tensor(NamedTensor{"w", DType::kF32, {rows, cols}, std::as_bytes(std::span(values))});
  const MadeTensor same{"w", DType::kF32, {rows, cols}, {{&source, 0, rows, 1, 1, 1, rows}}};
  EXPECT_EQ(floats(same), values);
  const MadeTensor swapped{"w", DType::kF32, {rows, cols}, {{&source, 0, rows, 1, 10, 3, 100}}};
  const std::vector<float> got = floats(swapped);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t j = r / 1000, i = r / 100 % 10;
    ASSERT_EQ(got[static_cast<size_t>(r * cols)], values[static_cast<size_t>(((i * 3 + j) * 100 + r % 100) * cols)]);
  }
}

}  // namespace
}  // namespace longshot
