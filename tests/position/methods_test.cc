// Published values of the other methods.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "position/support.h"

namespace longshot {
namespace {

constexpr PositionShape kShape{.layers = 2, .heads = 2, .head_dim = 8, .train_length = 64};

std::vector<float> embedding(Position& position, int64_t p, int64_t width) {
  position.prepare(0, p + 1);
  std::vector<float> row(static_cast<size_t>(width), 0.0f);
  position.add_to_input({row.data(), 1, width}, p);
  return row;
}

// Row p of fairseq's table is position p - 2: all sines, then all cosines, frequencies 10000^(-k / (half - 1)).
TEST(Sinusoidal, FairseqRows) {
  const auto position = make_position("sinusoidal", kShape);
  for (const int64_t p : {0, 1, 37}) {
    const auto row = embedding(*position, p, 16);
    for (int k = 0; k < 8; ++k) {
      const double angle = static_cast<double>(p + 2) * std::exp(-k * std::log(10000.0) / 7);
      EXPECT_NEAR(row[static_cast<size_t>(k)], std::sin(angle), 1e-6);
      EXPECT_NEAR(row[static_cast<size_t>(8 + k)], std::cos(angle), 1e-6);
    }
  }
  EXPECT_NEAR(embedding(*position, 0, 16)[0], 0.9092974, 1e-6);  // sin 2: the first token uses row 2
}

TEST(Sinusoidal, VaswaniRowsInterleave) {
  const auto position = make_position("sinusoidal", kShape, {{"sinusoidal-variant", "vaswani"}});
  const auto row = embedding(*position, 3, 16);
  for (int k = 0; k < 8; ++k) {
    const double angle = 3 * std::pow(10000.0, -2.0 * k / 16);
    EXPECT_NEAR(row[static_cast<size_t>(2 * k)], std::sin(angle), 1e-6);
    EXPECT_NEAR(row[static_cast<size_t>(2 * k + 1)], std::cos(angle), 1e-6);
  }
}

TEST(Rotary, Angles) {
  const auto position = make_position("rotary", kShape);
  position->prepare(0, 10);
  const Rotation r = position->rotation();
  ASSERT_EQ(r.cos.cols, 4);
  EXPECT_TRUE(r.interleaved);
  for (int64_t p = 0; p < 10; ++p) {
    for (int64_t c = 0; c < 4; ++c) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(c) / 8);
      EXPECT_NEAR(r.cos(p, c), std::cos(angle), 1e-6);
      EXPECT_NEAR(r.sin(p, c), std::sin(angle), 1e-6);
    }
  }
}

TEST(Rotary, FractionAndBaseAndStyle) {
  const auto position =
      make_position("rotary", kShape, {{"rotary-fraction", "0.5"}, {"rotary-base", "100"}, {"rotary-style", "half"}});
  position->prepare(0, 2);
  EXPECT_EQ(position->rotation().cos.cols, 2);
  EXPECT_FALSE(position->rotation().interleaved);
  EXPECT_NEAR(position->rotation().cos(1, 1), std::cos(std::pow(100.0, -0.5)), 1e-6);
}

// Last distance of each bucket, Hugging Face's defaults: 32 buckets, max distance 128, causal.
TEST(T5, BucketBoundaries) {
  const auto position = make_position("t5", kShape);
  std::vector<float> weights(32 * 2);
  for (size_t b = 0; b < 32; ++b) weights[2 * b] = static_cast<float>(b), weights[2 * b + 1] = -static_cast<float>(b);
  const std::vector<std::span<float>> values{weights};
  position->bind(values);
  position->prepare(0, 300);
  const ConstMat table = position->bias(1).table;
  EXPECT_EQ(table.cols, 129) << "the last entry holds for all distances beyond";
  const auto bucket = [&](int64_t d) { return table(0, 128 - d); };
  for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(bucket(d), static_cast<float>(d));
  const int64_t last[] = {18, 20, 23, 26, 30, 34, 39, 45, 51, 58, 66, 76, 86, 98, 112};
  int64_t first = 16;
  for (int b = 16; b < 31; ++b) {
    EXPECT_EQ(bucket(first), static_cast<float>(b)) << "distance " << first;
    EXPECT_EQ(bucket(last[b - 16]), static_cast<float>(b)) << "distance " << last[b - 16];
    first = last[b - 16] + 1;
  }
  EXPECT_EQ(bucket(113), 31.0f);
  EXPECT_EQ(bucket(128), 31.0f);
  EXPECT_EQ(table(1, 128 - 50), -24.0f);
}

TEST(PositionRows, OnlyAStretchIsKept) {
  PositionRows rows(2);
  int64_t made = 0;
  const auto cover = [&](int64_t first, int64_t last) {
    rows.cover(first, last, [&](int64_t p, float* row) { row[0] = static_cast<float>(p), row[1] = 1, ++made; });
    for (int64_t p = first; p < last; ++p) ASSERT_EQ(rows.row(p)[0], static_cast<float>(p));
  };
  cover(0, 100000);
  EXPECT_EQ(made, 100000) << "a long pass has them all";
  cover(5, 99999);
  EXPECT_EQ(made, 100000) << "what is there is not made again";
  for (int64_t p = 100000; p < 400000; ++p) cover(p, p + 1);
  EXPECT_EQ(made, 400000);
  EXPECT_LE(rows.rows().rows, 1 << 16) << "a stream does not grow the table";
  cover(3, 4);
  EXPECT_EQ(rows.first(), 3);
}

TEST(Rotary, RowsFarIntoAStream) {
  const auto near = make_position("rotary", kShape), far = make_position("rotary", kShape);
  near->prepare(0, 1010);
  far->prepare(1000, 1010);
  const Rotation a = near->rotation(), b = far->rotation();
  EXPECT_EQ(b.first, 1000);
  EXPECT_EQ(b.cos.rows, 10);
  for (int64_t p = 1000; p < 1010; ++p) {
    for (int64_t c = 0; c < a.cos.cols; ++c) {
      EXPECT_EQ(a.cos(p - a.first, c), b.cos(p - b.first, c));
      EXPECT_EQ(a.sin(p - a.first, c), b.sin(p - b.first, c));
    }
  }
}

TEST(Sinusoidal, RowsOfARangeFarAway) {
  const auto far = make_position("sinusoidal", kShape), near = make_position("sinusoidal", kShape);
  near->prepare(0, 1000);
  for (const int64_t p : {999, 500, 0, 873}) {
    far->prepare(p, p + 1);
    std::vector<float> a(16), b(16);
    far->add_to_input({a.data(), 1, 16}, p);
    near->add_to_input({b.data(), 1, 16}, p);
    EXPECT_EQ(a, b);
  }
}

TEST(Alibi, NothingDependsOnTheLength) {
  const auto position = make_position("alibi", {.layers = 1, .heads = 12, .head_dim = 8, .train_length = 8});
  EXPECT_FLOAT_EQ(position->bias(0).slopes[11], 0.08838835f);  // 12 is no power of two: the authors' own rule
  EXPECT_TRUE(position->tensors().empty());
  EXPECT_EQ(position->max_length(), std::numeric_limits<int64_t>::max());
}

TEST(Alibi, SlopesCanBeGiven) {
  const auto position = make_position("alibi", kShape, {{"alibi-slopes", "0.5,0.125"}});
  EXPECT_THAT(position->bias(0).slopes, testing::ElementsAre(0.5f, 0.125f));
  EXPECT_THROW(make_position("alibi", kShape, {{"alibi-slopes", "0.5"}}), Error);
  EXPECT_THROW(make_position("alibi", kShape, {{"alibi-slopes", "0.5,x"}}), Error);
  EXPECT_THROW(make_position("alibi", kShape, {{"alibi-slopes", "0.5,nan"}}), Error);
}

TEST(Registry, UnknownNamesAreRefusedWithTheNearest) {
  try {
    make_position("alibbi", kShape);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::kUsage);
    EXPECT_THAT(e.what(), testing::HasSubstr("'alibi'"));
  }
}

TEST(Registry, WrongOptionsAreNamedAsTyped) {
  const auto refusal = [](const char* method, const OptionTexts& texts) -> std::string {
    try {
      make_position(method, kShape, texts);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      return e.what();
    }
    return "";
  };
  const auto names = [](const char* option) { return testing::HasSubstr(option); };
  EXPECT_THAT(refusal("rotary", {{"rotary-bass", "100"}}), names("'rotary-base'"));
  EXPECT_THAT(refusal("rotary", {{"rotary-base", "nan"}}), names("--rotary-base"));
  EXPECT_THAT(refusal("rotary", {{"rotary-fraction", "0.1"}}), names("--rotary-fraction"));
  EXPECT_THAT(refusal("rotary", {{"rotary-style", "halves"}}), names("--rotary-style"));
  EXPECT_THAT(refusal("t5", {{"t5-buckets", "1"}}), names("--t5-buckets"));
  EXPECT_THAT(refusal("t5", {{"t5-buckets", "x"}}), names("--t5-buckets"));
  EXPECT_THAT(refusal("t5", {{"t5-max-distance", "16"}}), names("--t5-max-distance"));
  EXPECT_THAT(refusal("alibi", {{"alibi-learned", "perhaps"}}), names("--alibi-learned"));
  EXPECT_THAT(refusal("alibi", {{"alibi-slopes", "0.5"}}), names("--alibi-slopes has 1 slopes, the model 2 heads"));
  EXPECT_THAT(refusal("sinusoidal", {{"sinusoidal-variant", "fairsec"}}), names("'fairseq'"));
  EXPECT_EQ(refusal("alibi", {{"t5-buckets", "1"}}), "");  // not at work
}

TEST(Registry, SettingsAreValues) {
  PositionSettings one, two = one;
  Options options;
  two.fields(options);
  options.set("alibi-slopes", "0.5,0.25");
  EXPECT_EQ(one.make("alibi", kShape)->bias(0).slopes[0], 0.0625f);
  EXPECT_EQ(two.make("alibi", kShape)->bias(0).slopes[0], 0.5f);
  one = two;
  EXPECT_EQ(one.make("alibi", kShape)->bias(0).slopes[1], 0.25f);
  two = PositionSettings();
  EXPECT_EQ(two.make("alibi", kShape)->bias(0).slopes[0], 0.0625f);
  options.set("alibi-slopes", "0.75,0.25");
  EXPECT_EQ(two.make("alibi", kShape)->bias(0).slopes[0], 0.75f);
}

}  // namespace
}  // namespace longshot
