// Products of linear layers in their three forms, beside libraries that multiply matrices.
#include <cmath>
#include <functional>

#include "cli/bench.h"
#include "cli/blas.h"
#include "cli/command.h"
#include "kernels/product.h"

namespace longshot {
namespace {

const char* form_name(ProductForm form) {
  switch (form) {
    case ProductForm::kForward:
      return "x W^T";
    case ProductForm::kInputGradient:
      return "dy W";
    case ProductForm::kWeightGradient:
      return "dy^T x";
  }
  return "";
}

// The matrices of one case. `out` is what the product writes: y, dx or dW.
class ProductData {
 public:
  ProductData(const ProductCase& product, uint64_t seed)
      : p_(product),
        x_(random_floats(p_.rows * p_.inputs, seed, 1)),
        y_(random_floats(p_.rows * p_.outputs, seed, 2)),
        w_(random_floats(p_.outputs * p_.inputs, seed, 3)),
        out_(static_cast<size_t>(sgemm().m * sgemm().n)) {}

  // The same product as a library sees it.
  Sgemm sgemm() {
    const auto& [form, rows, outputs, inputs] = p_;
    switch (form) {
      case ProductForm::kForward:
        return {rows, outputs, inputs, false, true, x_.data(), w_.data(), out_.data(), 0};
      case ProductForm::kInputGradient:
        return {rows, inputs, outputs, false, false, y_.data(), w_.data(), out_.data(), 0};
      case ProductForm::kWeightGradient:
        return {outputs, inputs, rows, true, false, y_.data(), x_.data(), out_.data(), 1};
    }
    return {};
  }

  void run_ours(Context& context) {
    const auto& [form, rows, outputs, inputs] = p_;
    const Mat x(x_.data(), rows, inputs), y(y_.data(), rows, outputs);
    const Weight w{.values = Mat(w_.data(), outputs, inputs)};
    switch (form) {
      case ProductForm::kForward:
        return product(context, x, w, {out_.data(), rows, outputs});
      case ProductForm::kInputGradient:
        return product_transposed(context, y, w, {out_.data(), rows, inputs});
      case ProductForm::kWeightGradient:
        return product_gradient(context, y, x, {out_.data(), outputs, inputs});
    }
  }

  // What `run` makes of an output of zeros.
  std::vector<float> result(const std::function<void()>& run) {
    std::ranges::fill(out_, 0.0f);
    run();
    return out_;
  }

 private:
  ProductCase p_;
  std::vector<float> x_, y_, w_, out_;
};

// One who multiplies. Short calls are timed several at a time, the threads awake.
struct Contestant {
  std::string name;
  std::function<void()> run;
  int calls = 1;
  bool agrees = true;
  std::vector<double> seconds = {}, ratios = {};  // of a call; to ours in the same round

  void estimate() {
    run();
    calls = static_cast<int>(std::clamp(0.004 / seconds_of(run), 1.0, 10000.0));
  }
  void time() {
    wait_for_other_threads();
    if (calls > 1) repeat(calls / 4 + 1);
    seconds.push_back(seconds_of([&] { repeat(calls); }) / calls);
  }
  void repeat(int times) const {
    for (int i = 0; i < times; ++i) run();
  }
};

bool close(const std::vector<float>& a, const std::vector<float>& b, int64_t inner) {
  const float tolerance = 1e-6f * static_cast<float>(inner);  // terms are below 1/4
  return std::ranges::equal(a, b, [&](float x, float y) { return std::abs(x - y) <= tolerance; });
}

// Ours is the first. Everyone in every round, so that the machine's moods fall on all alike.
std::vector<Contestant> compete(Bench& bench, const ProductCase& product, const std::vector<Blas>& libraries) {
  ProductData data(product, bench.settings.seed);
  std::vector<Contestant> all = {{"longshot", [&] { data.run_ours(bench.context); }}};
  for (const Blas& library : libraries) all.push_back({library.name(), [&] { library.run(data.sgemm()); }});
  const std::vector<float> expected = data.result(all[0].run);
  for (Contestant& c : all) {
    c.agrees = close(data.result(c.run), expected, data.sgemm().k);
    c.estimate();
  }
  const int rounds = bench.settings.repeat * (all[0].calls > 1 ? 2 : 1);
  for (int round = 0; round < rounds; ++round) {
    for (Contestant& c : all) {
      c.time();
      c.ratios.push_back(c.seconds.back() / all[0].seconds.back());
    }
  }
  return all;
}

void report(Bench& bench, const ProductCase& product, const std::vector<Contestant>& all) {
  const double seconds = median(all[0].seconds), flops = product.flops();
  fmt::print("{:>22} {:>8} {:>9.1f} {:>8.1f}",
             fmt::format("{} x {} x {}", product.rows, product.outputs, product.inputs), form_name(product.form),
             flops / seconds / 1e9, bench.share(flops, seconds));
  Json libraries = Json::object();
  for (size_t i = 1; i < all.size(); ++i) {
    const double rate = flops / median(all[i].seconds) / 1e9, ratio = median(all[i].ratios);
    if (all[i].agrees) {
      fmt::print(" {:>18}", fmt::format("{:.0f} {:>5.2f}x", rate, ratio));
      libraries[all[i].name] = {{"gflops", rate}, {"ratio", ratio}};
    } else {
      fmt::print(" {:>18}", "results differ");
      libraries[all[i].name] = {{"results_differ", true}};
    }
  }
  fmt::print("\n");
  flush_output();
  bench.out["gemm"].push_back({{"form", form_name(product.form)},
                               {"rows", product.rows},
                               {"outputs", product.outputs},
                               {"inputs", product.inputs},
                               {"gflops", flops / seconds / 1e9},
                               {"percent_of_peak", bench.share(flops, seconds)},
                               {"libraries", libraries}});
}

}  // namespace

std::vector<Matrix> matrices_of(const ModelConfig& model) {
  const int64_t c = model.dim, f = model.ffn_dim();
  return {{3 * c, c}, {c, c}, {f, c}, {c, f}, {model.vocab, c}};
}

double time_product(const Bench& bench, const ProductCase& product) {
  ProductData data(product, bench.settings.seed);
  Contestant ours{"longshot", [&] { data.run_ours(bench.context); }};
  ours.estimate();
  for (int round = 0; round < bench.settings.repeat; ++round) ours.time();
  return median(ours.seconds);
}

void bench_products(Bench& bench) {
  std::vector<Blas> libraries;
  libraries.reserve(bench.settings.blas.size());
  for (const std::string& file : bench.settings.blas) libraries.emplace_back(file, bench.context.threads());
  fmt::print(
      "\nproducts of the model's layers and of the demo's, rows x outputs x inputs; libraries: GFLOP/s and how many "
      "times as long they take\n{:>22} {:>8} {:>9} {:>8}",
      "", "", "GFLOP/s", "% peak");
  for (const Blas& library : libraries) fmt::print(" {:>18}", library.name());
  fmt::print("\n");
  const ModelConfig &model = bench.settings.model, demo = demo_model(64);
  struct Group {
    const ModelConfig& model;
    int64_t rows;
  };
  for (const auto& [of, rows] :
       {Group{model, bench.settings.batch_tokens}, Group{demo, 1024}, Group{demo, 256}, Group{demo, 128}}) {
    for (const Matrix& w : matrices_of(of)) {
      for (const ProductForm form :
           {ProductForm::kForward, ProductForm::kInputGradient, ProductForm::kWeightGradient}) {
        const ProductCase product{form, rows, w.outputs, w.inputs};
        report(bench, product, compete(bench, product, libraries));
      }
    }
  }
}

}  // namespace longshot
