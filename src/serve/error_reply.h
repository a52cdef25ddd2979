// Errors as clients of OpenAI's interface know them: {"error": {"message", "type", "code"}}.
#pragma once
#include <string>

#include "base/json.h"
#include "serve/http.h"

namespace longshot {

// `code` names the case where programs may want to tell it from others.
Json error_json(int status, const std::string& message, const std::string& code = "");
HttpReply error_reply(int status, const std::string& message, const std::string& code = "");

}  // namespace longshot
