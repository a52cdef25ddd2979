// page.css and page.js, embedded by the build (assets.cc.in).
#pragma once

namespace longshot {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace longshot
