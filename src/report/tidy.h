// Every measured number of the results in one table of long form: a row per number, for data frames.
#pragma once
#include <string>
#include <string_view>

#include "run/results.h"

namespace longshot {

// RFC 4180, with a header. Columns: whose number it is (run, label, position, variant, train_length, seed), what it is
// (quantity, a name of results.json; `training_loss` is the curve's loss), how it was taken (length, mode, stride, split,
// score, precision, scaling, step, from, to, tokens), and the number: value, standard_error, low and high. A field that does not
// apply is empty; a loss without a value was not finite. Left out: biases, and the losses of stretches of text.
inline constexpr std::string_view kNumbersBeginning = "run,label,position,variant,train_length,seed,quantity,";
std::string tidy_csv(const Results& results);

}  // namespace longshot
