// The answer to a request for completions, as its texts are made.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "serve/completion_request.h"
#include "serve/engine.h"
#include "serve/http.h"

namespace longshot {

// The model that clients talk to.
struct ServedModel {
  std::string name;
  int64_t created = 0;  // seconds since 1970: when it was loaded
  Engine* engine = nullptr;
  ServeMetrics* metrics = nullptr;
};

// Has the texts made and answers, at once or as server-sent events. Error(kUsage) where they cannot be made; a full queue is
// answered with 429.
void answer_completion(const ServedModel& served, CompletionRequest request, const std::shared_ptr<Exchange>& exchange);

}  // namespace longshot
