#pragma once

namespace longshot {

const char* version();  // of the library and the program, e.g. "0.1.0"

}  // namespace longshot
