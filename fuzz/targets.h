// What is fuzzed: every reader of files that others made. Each takes any bytes and must end normally or with
// an Error.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/files.h"

namespace longshot::fuzz {

using Target = void (*)(std::string_view);
const std::map<std::string, Target>& targets();  // the seeds of each are in corpus/<name>

// An Error is an answer; anything else is a finding.
void run(Target target, std::string_view bytes);

// The process's own scratch directory. Its owner removes it.
const fs::path& scratch();

}  // namespace longshot::fuzz
