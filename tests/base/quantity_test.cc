#include "base/quantity.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace longshot {
namespace {

TEST(Quantity, RatesAreInBytesASecondAndDurationsInSeconds) {
  EXPECT_DOUBLE_EQ(parse_rate("bandwidth", "25Gbit"), 3.125e9);
  EXPECT_DOUBLE_EQ(parse_rate("bandwidth", "0.8Mbit"), 1e5);
  EXPECT_DOUBLE_EQ(parse_rate("bandwidth", "12MB"), 12e6);
  EXPECT_DOUBLE_EQ(parse_duration("latency", "20us"), 20e-6);
  EXPECT_DOUBLE_EQ(parse_duration("latency", "1.5ms"), 1.5e-3);
}

TEST(Quantity, WhatHasNoUnitIsRefusedByTheOption) {
  for (const char* text : {"25", "25 Gbit", "-1Gbit", "0Gbit", "Gbit", "", "nanGbit", "infGbit", "25gbit", "25Gbits"}) {
    try {
      parse_rate("bandwidth", text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      EXPECT_THAT(e.what(), testing::HasSubstr("--bandwidth: '" + std::string(text) + "' is not"));
    }
  }
}

}  // namespace
}  // namespace longshot
