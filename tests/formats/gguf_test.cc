#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "formats/safetensors.h"
#include "formats/scratch.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

fs::path fixture(const std::string& name) { return fs::path(LONGSHOT_SOURCE_DIR) / "tests/fixtures/gguf" / name; }

std::string bytes_of(const fs::path& path) {
  const MappedFile file(path);
  return std::string(file.text());
}

// Made by the gguf package.
TEST(Gguf, KeysOfEveryType) {
  const Gguf file(fixture("container.gguf"));
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.text("general.architecture"), "nothing");
  EXPECT_EQ(file.integer("general.alignment"), 64);
  EXPECT_EQ(file.integer("a.u8"), 250);
  EXPECT_EQ(file.integer("a.i8"), -5);
  EXPECT_EQ(file.integer("a.u16"), 65000);
  EXPECT_EQ(file.integer("a.i16"), -30000);
  EXPECT_EQ(file.integer("a.u32"), 4000000000);
  EXPECT_EQ(file.integer("a.i32"), -2000000000);
  EXPECT_EQ(file.integer("a.u64"), (int64_t{1} << 53) - 1);
  EXPECT_EQ(file.integer("a.i64"), -(int64_t{1} << 53));
  EXPECT_EQ(file.number("a.f32"), double{0.1f});
  EXPECT_EQ(file.number("a.f64"), 0.1);
  EXPECT_EQ(file.number("a.i8"), -5.0);
  EXPECT_EQ(file.boolean("a.true"), true);
  EXPECT_EQ(file.boolean("a.false"), false);
  EXPECT_EQ(file.text("a.text"), "snow \u2603");
  EXPECT_THAT(*file.texts("a.texts"), ElementsAre("", "one", "\u2603"));
  EXPECT_THAT(*file.numbers("a.floats"), ElementsAre(0.5, -0.25, 3.0));
  EXPECT_THAT(*file.numbers("a.integers"), ElementsAre(1, -2, 3));
  EXPECT_EQ(file.integer("a.none"), std::nullopt);
  EXPECT_EQ(file.texts("a.none"), std::nullopt);
}

TEST(Gguf, AValueOfAnotherKindIsRefused) {
  const Gguf file(fixture("container.gguf"));
  EXPECT_THAT(error_of([&] { file.integer("a.f32"); }), HasSubstr("\"a.f32\" is of type f32, not a whole number"));
  EXPECT_THAT(error_of([&] { file.number("a.text"); }), HasSubstr("not a number"));
  EXPECT_THAT(error_of([&] { file.boolean("a.u8"); }), HasSubstr("not true or false"));
  EXPECT_THAT(error_of([&] { file.text("a.texts"); }), HasSubstr("list of text, not text"));
  EXPECT_THAT(error_of([&] { file.texts("a.floats"); }), HasSubstr("not a list of texts"));
  EXPECT_THAT(error_of([&] { file.numbers("a.truths"); }), HasSubstr("not a list of numbers"));
  EXPECT_THAT(error_of([&] { file.numbers("a.u8"); }), HasSubstr("not a list of numbers"));
}

TEST(Gguf, TensorsOfEveryTypeAsThePackageReadsThem) {
  const Gguf file(fixture("container.gguf"));
  const Safetensors values(fixture("container.safetensors"));
  EXPECT_EQ(file.tensors().size(), values.tensors().size());
  for (const NamedTensor& expected : values.tensors()) {
    const GgufTensor* tensor = file.find(expected.name);
    ASSERT_TRUE(tensor) << expected.name;
    EXPECT_EQ(tensor->shape, expected.shape) << expected.name;
    std::vector<float> ours(static_cast<size_t>(*element_count(tensor->shape))), theirs(ours.size());
    read_blocks(tensor->type, tensor->bytes, ours);
    values.read(expected.name, theirs);
    EXPECT_EQ(ours, theirs) << expected.name;
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST(Gguf, RoundedToQ8AsThePackageDoes) {
  const Gguf file(fixture("container.gguf"));
  const GgufTensor &from = *file.find("quantised_from"), &to = *file.find("blocks.q8_0");
  std::vector<float> values(static_cast<size_t>(*element_count(from.shape)));
  read_blocks(from.type, from.bytes, values);
  std::vector<std::byte> bytes(to.bytes.size());
  write_blocks(GgmlType::kQ8_0, values, bytes);
  EXPECT_TRUE(std::ranges::equal(bytes, to.bytes));
}

TEST(GgmlBlocks, Q8OfTinyNumbersIsFinite) {
  const std::vector<float> tiny(32, 0x1p-149f);
  std::vector<std::byte> bytes(34);
  write_blocks(GgmlType::kQ8_0, tiny, bytes);
  std::vector<float> back(32, 1);
  read_blocks(GgmlType::kQ8_0, bytes, back);
  EXPECT_EQ(back, std::vector<float>(32, 0));
}

// The definition: of all values of the type the nearest, of two equally near the one with an even last bit.
template <class ToFloat>
uint16_t nearest(float value, ToFloat to_float, uint16_t infinity) {
  uint16_t best = 0;
  double distance = HUGE_VAL;
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const double away = std::abs(double{to_float(bits)} - std::abs(double{value}));
    if (away < distance || (away == distance && bits % 2 == 0)) best = bits, distance = away;
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST(DType, FloatsAreRoundedToTheNearestOfSixteenBits) {
  std::mt19937 random(3);
  std::vector<float> values{0.0f,    -0.0f,          1.0f,     0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f,
                            65504.f, 1.00048828125f, 65519.0f, 0x1p-26f, 2049.0f,  2051.0f,  0x1.ffcp-15f};
  for (int i = 0; i < 20; ++i)
    values.push_back(std::ldexp(static_cast<float>(random()) * 0x1p-32f, static_cast<int>(random() % 44) - 27));
  for (const float value : values) {
    EXPECT_EQ(float_to_half(value), nearest(value, half_to_float, 0x7C00)) << value;
    EXPECT_EQ(float_to_half(-value), nearest(-value, half_to_float, 0x7C00)) << value;
    EXPECT_EQ(float_to_bfloat(value), nearest(value, bfloat_to_float, 0x7F80)) << value;
  }
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(-INFINITY), 0xFC00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(NAN))));
  EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(NAN))));
  for (uint32_t bits = 0; bits < 0x7C00; ++bits)
    ASSERT_EQ(float_to_half(half_to_float(static_cast<uint16_t>(bits))), bits);
}

GgufKeys some_keys() {
  GgufKeys keys;
  keys.add("t", "text");
  keys.add("b", true);
  keys.add("u", uint32_t{7});
  keys.add("f", 0.5f);
  keys.add("texts", std::vector<std::string>{"a", "", "b c"});
  keys.add("floats", std::vector<float>{1, 2});
  keys.add("ints", std::vector<int32_t>{-1});
  keys.add("empty", std::vector<std::string>{});
  return keys;
}

std::string some_file(const ScratchDir& dir) {
  const std::vector<GgufOutput> tensors{{"a", GgmlType::kF32, {3, 5}}, {"b", GgmlType::kQ8_0, {2, 32}}};
  write_gguf(dir / "x.gguf", some_keys(), tensors, [&](size_t i, const GgufSink& sink) {
    const std::vector<std::byte> bytes(i == 0 ? 60 : 68, std::byte{static_cast<uint8_t>(i + 1)});
    sink(std::span(bytes).first(10));
    sink(std::span(bytes).subspan(10));
  });
  return bytes_of(dir / "x.gguf");
}

TEST(Gguf, WhatIsWrittenIsRead) {
  const ScratchDir dir;
  some_file(dir);
  const Gguf file(dir / "x.gguf");
  EXPECT_EQ(file.text("t"), "text");
  EXPECT_EQ(file.boolean("b"), true);
  EXPECT_EQ(file.integer("u"), 7);
  EXPECT_EQ(file.number("f"), 0.5);
  EXPECT_THAT(*file.texts("texts"), ElementsAre("a", "", "b c"));
  EXPECT_THAT(*file.numbers("floats"), ElementsAre(1, 2));
  EXPECT_THAT(*file.numbers("ints"), ElementsAre(-1));
  EXPECT_TRUE(file.texts("empty")->empty());
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.find("a")->shape, Shape({3, 5}));
  EXPECT_EQ(file.find("a")->bytes.size(), 60u);
  EXPECT_EQ(file.find("b")->bytes[67], std::byte{2});
  EXPECT_EQ((file.find("b")->bytes.data() - file.find("a")->bytes.data()) % 32, 0);
  EXPECT_EQ(file.data_bytes(), 128u);
  EXPECT_TRUE(Gguf::is_one(dir / "x.gguf"));
  EXPECT_FALSE(Gguf::is_one(fixture("container.safetensors")));
}

TEST(Gguf, AWriterThatGivesTooLittleIsTold) {
  const ScratchDir dir;
  const std::vector<GgufOutput> tensors{{"a", GgmlType::kF32, {3}}};
  EXPECT_THAT(error_of([&] { write_gguf(dir / "x", {}, tensors, [](size_t, const GgufSink&) {}); }),
              HasSubstr("needs 12 bytes but has 0"));
  EXPECT_THAT(error_of([&] {
                write_gguf(dir / "x", {}, std::vector<GgufOutput>{{"a", GgmlType::kQ8_0, {31}}}, {});
              }),
              HasSubstr("blocks have 32 elements"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  const ScratchDir dir;
  const std::string whole = some_file(dir);
  for (size_t size = 0; size + 32 < whole.size(); ++size) {  // behind the last tensor is padding
    const MemoryFile cut(std::string_view(whole).substr(0, size));
    EXPECT_NE(error_of([&] { Gguf{cut.path()}; }), "") << size;
  }
}

TEST(Gguf, ADamagedByteIsReadOrRefused) {
  const ScratchDir dir;
  const std::string whole = some_file(dir);
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char with : {'\0', '\x01', '\x7F', '\xFF'}) {
      std::string damaged = whole;
      damaged[at] = with;
      const MemoryFile file(damaged);
      try {
        const Gguf gguf(file.path());
        for (const GgufTensor& t : gguf.tensors()) {
          std::vector<float> out(static_cast<size_t>(*element_count(t.shape)));
          if (is_readable(t.type)) read_blocks(t.type, t.bytes, out);
        }
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, whole.size() / 4);
}

std::string text(std::string_view s) { return little_endian(uint64_t{s.size()}) + std::string(s); }
std::string head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + little_endian(version) + little_endian(tensors) + little_endian(keys);
}
std::string key(std::string_view name, uint32_t type) { return text(name) + little_endian(type); }
std::string tensor(std::string_view name, const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset) {
  std::string out = text(name) + little_endian(static_cast<uint32_t>(extents.size()));
  for (const uint64_t e : extents) out += little_endian(e);
  return out + little_endian(type) + little_endian(offset);
}
std::string with_data(std::string header, size_t bytes) {
  header.resize((header.size() + 31) / 32 * 32 + bytes);
  return header;
}

struct Lie {
  std::string file;
  std::string message;
};

class GgufLies : public testing::TestWithParam<Lie> {};

TEST_P(GgufLies, AreRefused) {
  const MemoryFile file(GetParam().file);
  EXPECT_THAT(error_of([&] { Gguf{file.path()}; }), HasSubstr(GetParam().message));
}

constexpr uint64_t kHuge = uint64_t{1} << 63;
INSTANTIATE_TEST_SUITE_P(
    Each, GgufLies,
    testing::Values(
        Lie{"", "needs 4 bytes"}, Lie{"GGML    ", "does not begin with \"GGUF\""},
        Lie{head(0, 0, 1), "version 1; versions 2 and 3"}, Lie{head(0, 0, 0x03000000), "big-endian"},
        Lie{head(kHuge, 0), "tensors"}, Lie{head(0, UINT64_MAX), "keys"},
        Lie{head(0, 1) + std::string(20, '\0'), "0 bytes"},
        Lie{head(0, 1) + little_endian(UINT64_MAX) + "a     ", "needs 18446744073709551615 bytes"},
        Lie{head(0, 1) + key("k", 13) + "        ", "of type 13"},
        Lie{head(0, 1) + key("k", 7) + "\x02", "truth value of 2"},
        Lie{head(0, 1) + key("k", 9) + little_endian(9u) + little_endian(uint64_t{1}), "list of lists"},
        Lie{head(0, 1) + key("k", 9) + little_endian(12u) + little_endian(kHuge), "9223372036854775808 values"},
        Lie{head(0, 1) + key("k", 9) + little_endian(8u) + little_endian(kHuge) + text("a"), "needs 8 bytes"},
        Lie{head(0, 2) + key("k", 0) + "a" + key("k", 0) + "a", "key \"k\" twice"},
        Lie{head(0, 2) + key("\x1b", 0) + "a" + key("\x1b", 0) + "a", "key \"\\x1b\" twice"},
        Lie{head(0, 1) + key("general.alignment", 4) + little_endian(24u), "alignment is 24"},
        Lie{head(0, 1) + key("general.alignment", 4) + little_endian(0u), "alignment is 0"},
        Lie{head(0, 1) + key("general.alignment", 6) + little_endian(32.0f), "not a whole number"},
        Lie{with_data(head(1, 0) + tensor("", {1}, 0, 0), 64), "name of 0 bytes"},
        Lie{with_data(head(1, 0) + tensor(std::string(65, 'a'), {1}, 0, 0), 64), "name of 65 bytes"},
        Lie{with_data(head(1, 0) + tensor("a", {}, 0, 0), 64), "0 dimensions"},
        Lie{with_data(head(1, 0) + tensor("a", {1, 1, 1, 1, 1}, 0, 0), 64), "5 dimensions"},
        Lie{with_data(head(1, 0) + tensor("a", {0}, 0, 0), 64), "extent 0"},
        Lie{with_data(head(1, 0) + tensor("a", {kHuge}, 0, 0), 64), "extent 9223372036854775808"},
        Lie{with_data(head(1, 0) + tensor("a", {kHuge / 2, kHuge / 2}, 0, 0), 64), "cannot lie in a file"},
        Lie{with_data(head(1, 0) + tensor("a", {1}, 4, 0), 64), "type 4, which is not known"},
        Lie{with_data(head(1, 0) + tensor("a", {33}, 8, 0), 640), "blocks of 32"},
        Lie{with_data(head(1, 0) + tensor("a", {4}, 0, 8), 64), "multiple of 32"},
        Lie{with_data(head(1, 0) + tensor("a", {4}, 0, kHuge), 64), "bytes of data"},
        Lie{with_data(head(1, 0) + tensor("a", {4}, 0, 64), 64), "bytes of data"},
        Lie{with_data(head(2, 0) + tensor("a", {16}, 0, 0) + tensor("b", {4}, 0, 32), 64), "ends at 64"},
        Lie{with_data(head(2, 0) + tensor("a", {4}, 0, 0) + tensor("a", {4}, 0, 32), 64), "tensor \"a\" twice"}));

}  // namespace
}  // namespace longshot
