#include "base/version.h"

namespace longshot {
const char* version() { return LONGSHOT_VERSION; }
}  // namespace longshot
