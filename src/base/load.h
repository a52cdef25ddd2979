// How much of the machine other programs take while something is measured.
#pragma once
#include <optional>

namespace longshot {

class LoadMeter {
 public:
  LoadMeter();
  // Since it was made, of all cores' time: (busy - this process) / all; nothing where the system does not say.
  std::optional<double> others() const;

 private:
  double all_ = 0, busy_ = 0, own_ = 0;  // seconds
};

}  // namespace longshot
