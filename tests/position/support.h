// A method at work in a small model.
#pragma once
#include <map>

#include "position/position.h"

namespace longshot {

using OptionTexts = std::map<std::string, std::string>;  // as typed on the command line

inline std::unique_ptr<Position> make_position(const std::string& method, const PositionShape& shape,
                                               const OptionTexts& texts = {}) {
  PositionSettings settings;
  Options options;
  settings.fields(options);
  for (const auto& [name, value] : texts) options.set(name, value);
  return settings.make(method, shape);
}

}  // namespace longshot
