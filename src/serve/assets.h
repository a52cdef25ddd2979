// page.html, page.css and page.js, embedded by the build (assets.cc.in).
#pragma once

namespace longshot {

extern const char* const kServePage;
extern const char* const kServeStyle;
extern const char* const kServeScript;

}  // namespace longshot
