// Small models to generate with.
#pragma once
#include <gmock/gmock.h>

#include "train/support.h"

namespace longshot {

class SmallModelTest : public testing::Test {
 protected:
  // A few steps are enough: weights that are not those of the start.
  LoadedModel& model(const std::string& position, const std::string& slopes = "") {
    TrainRequest request = small_request(dir_ / "data", dir_ / position, 5);
    if (!fs::exists(dir_ / "data")) write_token_set(dir_ / "data", 3000);
    request.model.position = position;
    if (!slopes.empty()) request.model.set("alibi-slopes", slopes);
    trained(request);
    loaded_ = load_model(dir_ / position);
    return loaded_;
  }

 private:
  ScratchDir dir_;
  LoadedModel loaded_;
};

}  // namespace longshot
