// What a library user includes.
#pragma once

namespace longshot {

const char* version();

}  // namespace longshot
