// Amounts in words that people read.
#pragma once
#include <string>

namespace longshot {

std::string duration_text(double seconds);  // "42 s", "3 min 10 s", "2 h 05 min"
std::string bytes_text(double bytes);       // "512 B", "1.5 MiB"
std::string count_text(double count);       // "950", "12.3k", "4.56M"

// What people write of an option's value: "25Gbit", "100Mbit", "3GB" a second, in bytes; "20us", "0.5ms", "2s" in seconds.
// Error(kUsage) names the option.
double parse_rate(const std::string& option, const std::string& text);
double parse_duration(const std::string& option, const std::string& text);

}  // namespace longshot
