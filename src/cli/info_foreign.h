// What `longshot info` says of other programs' models, whatever the kind of file.
#pragma once
#include <string>
#include <vector>

#include "model/config.h"

namespace longshot {

struct ForeignModel {
  std::string family;
  int64_t parameters = 0;
  std::vector<std::string> refused;  // what this program does not do
  const ModelConfig& config;         // shown where nothing is refused
};

void print_foreign(const ForeignModel& model);
Json foreign_json(const ForeignModel& model);

}  // namespace longshot
