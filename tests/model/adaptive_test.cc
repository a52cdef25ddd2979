#include "model/adaptive.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "context.h"
#include "model/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

ModelConfig adaptive_config() {
  ModelConfig c = tiny_config();
  c.adaptive_cutoffs = {9, 20};
  c.adaptive_factor = 2;
  return c;
}

Mat tensor(Transformer& model, const std::string& name) {
  Parameters& p = model.parameters();
  for (size_t id = 0; id < p.tensors().size(); ++id) {
    if (p.tensors()[id].name == name) return p.value_mat(id);
  }
  throw std::out_of_range(name);
}

std::string band_name(size_t k, const char* part) { return "embed.band" + std::to_string(k) + "." + part; }

std::vector<double> row_times(const double* x, Mat w) {  // w x
  std::vector<double> y;
  for (int64_t r = 0; r < w.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < w.cols; ++c) sum += x[c] * w(r, c);
    y.push_back(sum);
  }
  return y;
}

void log_softmax(std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  for (double& v : x) v -= std::log(sum);
}

// The definition, in double: ln p of every word.
std::vector<double> expected_log_probabilities(Transformer& model, const float* hidden) {
  const ModelConfig& c = model.config();
  const std::vector<double> h(hidden, hidden + c.dim);
  std::vector<double> head = row_times(h.data(), tensor(model, band_name(0, "weight")));
  const size_t words = head.size();
  for (const double v : row_times(h.data(), tensor(model, "output.clusters"))) head.push_back(v);
  log_softmax(head);
  std::vector<double> all(head.begin(), head.begin() + static_cast<ptrdiff_t>(words));
  for (size_t k = 1; k <= c.adaptive_cutoffs.size(); ++k) {
    const Mat p = tensor(model, band_name(k, "projection"));
    std::vector<double> z(static_cast<size_t>(p.cols), 0.0);
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.cols; ++j) z[static_cast<size_t>(j)] += h[static_cast<size_t>(i)] * p(i, j);
    }
    std::vector<double> tail = row_times(z.data(), tensor(model, band_name(k, "weight")));
    log_softmax(tail);
    for (const double v : tail) all.push_back(v + head[words + k - 1]);
  }
  return all;
}

struct Random {
  Random(int64_t rows, int64_t cols, uint64_t stream)
      : memory(static_cast<size_t>(rows * cols)), mat(memory.data(), rows, cols) {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(normal(1, Stream::kTest, stream, i));
  }
  std::vector<float> memory;
  Mat mat;
};

TEST(Adaptive, TensorsAndCount) {
  const auto model = tiny_model(adaptive_config());
  EXPECT_EQ(tensor(*model, "embed.band0.weight").rows, 9);
  EXPECT_EQ(tensor(*model, "embed.band0.projection").cols, 24);
  EXPECT_EQ(tensor(*model, "embed.band1.weight").rows, 11);
  EXPECT_EQ(tensor(*model, "embed.band1.weight").cols, 12);
  EXPECT_EQ(tensor(*model, "embed.band2.weight").rows, 17);
  EXPECT_EQ(tensor(*model, "embed.band2.projection").rows, 24);
  EXPECT_EQ(tensor(*model, "embed.band2.projection").cols, 6);
  EXPECT_EQ(tensor(*model, "output.clusters").rows, 2);
}

// Counting needs no memory for the values.
TEST(Adaptive, PaperModelHasThePublishedNumberOfParameters) {
  ModelConfig c;
  c.layers = 16, c.dim = 1024, c.heads = 8, c.ffn = 4096, c.vocab = 267744, c.length = 512;
  c.final_norm = false;
  c.adaptive_cutoffs = {20000, 60000};
  Parameters parameters;
  const AdaptiveBands bands = add_adaptive_bands(c, parameters);
  const AdaptiveSoftmax softmax(c, parameters, bands);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < c.layers; ++i) layers.emplace_back(c, parameters, i);
  EXPECT_EQ(parameters.count(), 246933504);
}

TEST(Adaptive, EmbeddingIsProjectedWordTimesScale) {
  const auto model = tiny_model(adaptive_config());
  const ModelConfig& c = model->config();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 3 * 37; ++i) tokens.push_back(i * 5 % 37);
  const Random x(static_cast<int64_t>(tokens.size()), c.dim, 1);
  const std::vector<int64_t> first_position{0};
  model->embed(test_context(), {tokens, static_cast<int64_t>(tokens.size()), first_position}, x.mat, {});
  for (size_t r = 0; r < tokens.size(); ++r) {
    const size_t k = tokens[r] < 9 ? 0 : tokens[r] < 20 ? 1 : 2;
    const int64_t first = k == 0 ? 0 : c.adaptive_cutoffs[k - 1];
    const Mat words = tensor(*model, band_name(k, "weight"));
    const float* word = words.row(tokens[r] - first);
    const std::vector<double> w(word, word + words.cols);
    const auto expected = row_times(w.data(), tensor(*model, band_name(k, "projection")));
    for (size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(x.mat(static_cast<int64_t>(r), static_cast<int64_t>(j)), expected[j] * std::sqrt(24.0), 1e-4);
    }
  }
}

TEST(Adaptive, EqualsAFullSoftmaxOfTheSameParameters) {
  const auto model = tiny_model(adaptive_config());
  const ModelConfig& c = model->config();
  const int64_t rows = 3 * c.vocab;
  const Random hidden(rows, c.dim, 2);
  Random out(rows, c.vocab, 3);
  model->output().log_probabilities(test_context(), hidden.mat, out.mat);
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(r * 7 % c.vocab));
  targets[4] = -1;
  std::vector<float> losses(static_cast<size_t>(rows));
  const auto whole = model->output().scratch_floats(rows);
  for (const int64_t floats : {whole, whole / 5}) {  // in one piece, and in chunks
    std::vector<float> scratch(static_cast<size_t>(floats));
    std::fill(losses.begin(), losses.end(), 99.0f);
    model->output().loss(test_context(), {hidden.mat, targets, scratch, losses});
    for (int64_t r = 0; r < rows; ++r) {
      const auto expected = expected_log_probabilities(*model, hidden.mat.row(r));
      double total = 0;
      for (int64_t w = 0; w < c.vocab; ++w) {
        ASSERT_NEAR(out.mat(r, w), expected[static_cast<size_t>(w)], 1e-5);
        total += std::exp(static_cast<double>(out.mat(r, w)));
      }
      EXPECT_NEAR(total, 1, 1e-5);
      const int32_t target = targets[static_cast<size_t>(r)];
      EXPECT_NEAR(losses[static_cast<size_t>(r)], target < 0 ? 0 : -expected[static_cast<size_t>(target)], 1e-5);
    }
  }
}

TEST(Adaptive, ChunksDoNotChangeGradients) {
  ModelConfig c = adaptive_config();
  c.adaptive_dropout = 0.25;
  const auto model = tiny_model(c);
  const int64_t rows = 50;
  const Random hidden(rows, c.dim, 2);
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(r * 11 % c.vocab));
  const auto whole = model->output().scratch_floats(rows);
  std::vector<std::vector<float>> results;
  for (const int64_t floats : {whole, whole / 7}) {
    auto grads = model->parameters().grads();
    std::fill(grads.begin(), grads.end(), 0.0f);
    std::vector<float> scratch(static_cast<size_t>(floats)), losses(static_cast<size_t>(rows));
    Random d_hidden(rows, c.dim, 4);
    model->output().loss_and_gradient(test_context(), {hidden.mat, targets, scratch, losses}, {0.5f, d_hidden.mat, 31});
    std::vector<float> all(grads.begin(), grads.end());
    all.insert(all.end(), d_hidden.memory.begin(), d_hidden.memory.end());
    all.insert(all.end(), losses.begin(), losses.end());
    results.push_back(all);
  }
  for (size_t i = 0; i < results[0].size(); ++i) ASSERT_NEAR(results[0][i], results[1][i], 2e-5);
}

TEST(Adaptive, DropoutActsInTrainingOnly) {
  ModelConfig c = adaptive_config();
  c.adaptive_dropout = 0.25;
  const auto model = tiny_model(c);
  const Random hidden(40, c.dim, 2);
  Random d_hidden(40, c.dim, 4);
  std::vector<int32_t> targets;
  for (int32_t r = 0; r < 40; ++r) targets.push_back(r % 37);
  std::vector<float> scratch(static_cast<size_t>(model->output().scratch_floats(40)));
  const auto training = [&](uint64_t key) {
    std::vector<float> losses(40);
    model->output().loss_and_gradient(test_context(), {hidden.mat, targets, scratch, losses}, {1, d_hidden.mat, key});
    return losses;
  };
  std::vector<float> plain(40), again(40);
  model->output().loss(test_context(), {hidden.mat, targets, scratch, plain});
  model->output().loss(test_context(), {hidden.mat, targets, scratch, again});
  EXPECT_EQ(plain, again);
  EXPECT_EQ(training(1), training(1));
  EXPECT_NE(training(1), training(2));
  EXPECT_NE(training(1), plain);
}

// fairseq's embedding of each band has a padding row, so ids 1, 10 and 21 learn nothing from the input side.
TEST(Adaptive, PaddingRowsAsInFairseqOnlyWhenAskedFor) {
  for (const bool quirk : {false, true}) {
    ModelConfig c = adaptive_config();
    c.adaptive_padding_rows = quirk;
    const auto model = tiny_model(c);
    const std::vector<int32_t> tokens{10, 11, 21, 1};
    const Random dx(4, c.dim, 6), room(4, c.dim, 7);
    const int64_t position = 0;
    model->embed_backward(test_context(), {tokens, 4, {&position, 1}}, dx.mat, {.x = room.mat, .dx = {}, .stats = {}});
    const Mat values = tensor(*model, "embed.band1.weight");
    const float* grads = model->parameters().grads().data() + (values.data - model->parameters().values().data());
    double padding = 0, other = 0;
    for (int64_t j = 0; j < values.cols; ++j) {
      padding += std::abs(grads[values.cols + j]);
      other += std::abs(grads[2 * values.cols + j]);
    }
    EXPECT_GT(other, 0.1);
    EXPECT_EQ(padding == 0, quirk);
  }
}

// fairseq's training loss leaves out the term inside the band for targets 10 and 21; its evaluation does not.
TEST(Adaptive, PaddingTargetsAsInFairseqOnlyWhenAskedFor) {
  ModelConfig c = adaptive_config();
  const auto plain = tiny_model(c);
  c.adaptive_padding_rows = true;
  const auto quirk = tiny_model(c);
  const Random hidden(3, c.dim, 2);
  const Random d_hidden(3, c.dim, 4);
  const std::vector<int32_t> targets{10, 11, 21};
  std::vector<float> scratch(static_cast<size_t>(plain->output().scratch_floats(3)));
  std::vector<float> full(3), scored(3), trained(3);
  plain->output().loss_and_gradient(test_context(), {hidden.mat, targets, scratch, full}, {1, d_hidden.mat, 0});
  quirk->output().loss(test_context(), {hidden.mat, targets, scratch, scored});
  quirk->output().loss_and_gradient(test_context(), {hidden.mat, targets, scratch, trained}, {1, d_hidden.mat, 0});
  EXPECT_EQ(full, scored);
  EXPECT_EQ(trained[1], full[1]);
  EXPECT_LT(trained[0], full[0] - 0.1f);
  EXPECT_LT(trained[2], full[2] - 0.1f);
}

TEST(Adaptive, InitialisationHasTheReferencesSpread) {
  ModelConfig c = adaptive_config();
  c.vocab = 5000, c.adaptive_cutoffs = {1000, 2500};
  Transformer model(c, false);
  model.initialize(test_context(), 7);
  for (size_t k = 0; k < 3; ++k) {
    const Mat words = tensor(model, band_name(k, "weight"));
    double squares = 0;
    for (int64_t r = 0; r < words.rows; ++r) {
      for (int64_t j = 0; j < words.cols; ++j) squares += words(r, j) * words(r, j);
    }
    EXPECT_NEAR(squares / static_cast<double>(words.rows), 1.0, 0.05);  // N(0, 1 / dim) over dim elements
    for (int64_t j = 0; j < words.cols; ++j) EXPECT_EQ(words(1, j), 0);
    const Mat p = tensor(model, band_name(k, "projection"));
    const double bound = std::sqrt(6.0 / static_cast<double>(p.rows + p.cols));
    double most = 0, sum = 0;
    for (int64_t i = 0; i < p.rows * p.cols; ++i) {
      most = std::max(most, std::abs(static_cast<double>(p.data[i])));
      sum += p.data[i] * p.data[i];
    }
    EXPECT_LE(most, bound);
    EXPECT_NEAR(sum / static_cast<double>(p.rows * p.cols), bound * bound / 3, bound * bound / 15);
  }
}

TEST(Adaptive, WrongOptionsAreRefused) {
  const auto refusal = [](auto change) -> std::string {
    ModelConfig c = adaptive_config();
    change(c);
    try {
      c.validate();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](ModelConfig&) {}), "");
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_cutoffs = {9, 9}; }), HasSubstr("ascend"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_cutoffs = {0}; }), HasSubstr("ascend"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_cutoffs = {37}; }), HasSubstr("37"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_factor = 20; }), HasSubstr("no elements"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_factor = 0.5; }), HasSubstr("below 1"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.tied = false; }), HasSubstr("tied"));
  EXPECT_THAT(refusal([](ModelConfig& c) { c.adaptive_dropout = 1; }), HasSubstr("adaptive-dropout"));
}

TEST(Adaptive, ConfigurationSurvivesStorage) {
  ModelConfig c = adaptive_config();
  c.adaptive_dropout = 0.2;
  const ModelConfig read = ModelConfig::from_json(c.to_json(), "test");
  EXPECT_EQ(read.adaptive_cutoffs, c.adaptive_cutoffs);
  EXPECT_EQ(read.adaptive_factor, 2);
  EXPECT_EQ(read.adaptive_dropout, 0.2);
  EXPECT_TRUE(ModelConfig::from_json(tiny_config().to_json(), "test").adaptive_cutoffs.empty());
}

}  // namespace
}  // namespace longshot
