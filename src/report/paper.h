// The paper's figures, for the curves and bars beside ours. Methods it did not run have none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longshot {

struct PaperCurve {
  struct Point {
    int64_t length;
    double perplexity;
  };
  int64_t train_length;  // 512, 1024 or 3072: the nearest to the one asked for
  std::vector<Point> points;
};
std::optional<PaperCurve> paper_curve(const std::string& position, int64_t train_length);

struct PaperCost {
  int64_t train_length;
  double train_speed, eval_speed;  // words per second
  double memory;                   // bytes, in training
};
std::optional<PaperCost> paper_cost(const std::string& position, int64_t train_length);

}  // namespace longshot
