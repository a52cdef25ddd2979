// Progress on stderr: one line rewritten in place on a terminal, a plain line now and then elsewhere.
#pragma once
#include <chrono>
#include <string>

#include "base/quantity.h"
#include "evaluate/evaluation.h"
#include "train/trainer.h"

namespace longshot {

class Progress {
 public:
  Progress();
  ~Progress();
  // Shows `text` if the last one is old enough to be read; `now` shows it in any case.
  void show(const std::string& text, bool now = false);
  // A line that stays.
  void note(const std::string& text);
  void clear();  // room for a line of results
  void mute();   // says nothing from now on: of several ranks one speaks

 private:
  bool terminal_;
  bool muted_ = false;
  bool open_ = false;  // a rewritable line stands on the terminal
  std::chrono::steady_clock::time_point next_;
};

// Shows "what: 42%" where it takes a while, and ends it on Ctrl-C.
Watch watched(Progress& progress, const std::string& what);

std::string step_text(const StepReport& report);  // "step 10/300  loss 5.4321  12.3k tokens/s  2 min 05 s left"
std::string evaluation_text(const EvaluationCallbacks::Progress& progress);

}  // namespace longshot
