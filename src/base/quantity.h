// Amounts in words that people read.
#pragma once
#include <string>

namespace longshot {

std::string duration_text(double seconds);  // "42 s", "3 min 10 s", "2 h 05 min"
std::string bytes_text(double bytes);       // "512 B", "1.5 MiB"
std::string count_text(double count);       // "950", "12.3k", "4.56M"

}  // namespace longshot
