#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/scratch.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string with_header(std::string_view header, size_t data_bytes) {
  return little_endian(uint64_t{header.size()}) + std::string(header) + std::string(data_bytes, '\x01');
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(DType, HalfAndBfloatAreExact) {
  EXPECT_EQ(half_to_float(0x3C00), 1.0f);
  EXPECT_EQ(half_to_float(0xC000), -2.0f);
  EXPECT_EQ(half_to_float(0x3555), 0.333251953125f);
  EXPECT_EQ(half_to_float(0x7BFF), 65504.0f);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(half_to_float(0x83FF), -0x3FFp-24f);
  EXPECT_EQ(half_to_float(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
  EXPECT_EQ(half_to_float(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half_to_float(0x7E00)));
  EXPECT_EQ(bfloat_to_float(0x3F80), 1.0f);
  EXPECT_EQ(bfloat_to_float(0xC049), -3.140625f);
}

TEST(DType, ElementCountRefusesOverflow) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4}), 12);
  EXPECT_EQ(element_count({0, INT64_MAX, INT64_MAX}), std::nullopt);
  EXPECT_EQ(element_count({INT64_MAX, 0}), std::nullopt);
  EXPECT_EQ(element_count({5, 0}), 0);
  EXPECT_EQ(element_count({int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(element_count({2, -1}), std::nullopt);
}

TEST(Safetensors, RoundTrip) {
  const ScratchDir dir;
  const std::vector<float> weights{1, -2, 3.5f, 4, 5, 6};
  const std::vector<uint16_t> halves{0x3C00, 0xC000, 0x0001};
  const std::vector<double> doubles{0.1};
  const std::vector<int64_t> numbers{7, -8};
  const std::vector<uint8_t> none;
  const std::vector<NamedTensor> tensors{
      {"z.weight", DType::kF32, {2, 3}, bytes_of(weights)}, {"half", DType::kF16, {3}, bytes_of(halves)},
      {"brain", DType::kBF16, {3}, bytes_of(halves)},       {"scalar \"é\"", DType::kF64, {}, bytes_of(doubles)},
      {"count", DType::kI64, {2, 1}, bytes_of(numbers)},    {"empty", DType::kU8, {4, 0}, bytes_of(none)}};
  const SafetensorsMetadata metadata{{"position", "alibi"}, {"step", "12"}};
  write_safetensors(dir / "m.safetensors", tensors, metadata);

  const Safetensors file(dir / "m.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const NamedTensor& t : tensors) {
    const NamedTensor& read = file.at(t.name);
    EXPECT_EQ(read.dtype, t.dtype);
    EXPECT_EQ(read.shape, t.shape);
    ASSERT_EQ(read.bytes.size(), t.bytes.size());
    EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), t.bytes.begin())) << t.name;
  }
  EXPECT_EQ(file.names()[0], "z.weight");
  EXPECT_EQ(file.find("absent"), nullptr);

  std::vector<float> out(6);
  file.read("z.weight", out);
  EXPECT_EQ(out, weights);
  out.resize(3);
  file.read("half", out);
  EXPECT_THAT(out, ElementsAre(1.0f, -2.0f, 0x1p-24f));
  file.read("brain", out);
  EXPECT_THAT(out, ElementsAre(0x1.0p-7f, -2.0f, 0x1p-133f));
  out.resize(1);
  file.read("scalar \"é\"", out);
  EXPECT_EQ(out[0], 0.1f);

  EXPECT_THAT(error_of([&] { file.read("count", out); }), HasSubstr("I64"));
  EXPECT_THAT(error_of([&] { file.read("half", out); }), HasSubstr("3 elements, but 1"));
  EXPECT_THAT(error_of([&] { file.at("absent"); }), HasSubstr("\"absent\""));
}

TEST(Safetensors, DataBeginsAlignedToEight) {
  const ScratchDir dir;
  for (const std::string name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
    const std::vector<float> values{1};
    const std::vector<NamedTensor> tensors{{name, DType::kF32, {1}, bytes_of(values)}};
    write_safetensors(dir / "m", tensors);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Safetensors(dir / "m").at(name).bytes.data()) % 8, 0u);
  }
}

TEST(Safetensors, FileWithoutTensors) {
  const ScratchDir dir;
  write_safetensors(dir / "m", std::span<const NamedTensor>{});
  EXPECT_TRUE(Safetensors(dir / "m").tensors().empty());
}

TEST(Safetensors, WriterRefusesWhatItCouldNotRead) {
  const ScratchDir dir;
  const std::vector<float> values{1, 2};
  const auto writing = [&](std::vector<NamedTensor> tensors) {
    return error_of([&] { write_safetensors(dir / "m", tensors); });
  };
  const NamedTensor good{"a", DType::kF32, {2}, bytes_of(values)};
  NamedTensor wrong = good;
  wrong.shape = {3};
  EXPECT_THAT(writing({wrong}), HasSubstr("[3]"));
  EXPECT_THAT(writing({good, good}), HasSubstr("two tensors"));
  wrong = good;
  wrong.name = "__metadata__";
  EXPECT_THAT(writing({wrong}), HasSubstr("__metadata__"));
  wrong.name = "\xff\xfe";
  EXPECT_THAT(writing({wrong}), HasSubstr("UTF-8"));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const ScratchDir dir;
  const std::vector<float> values{1, 2, 3};
  const std::vector<NamedTensor> tensors{{"a", DType::kF32, {3}, bytes_of(values)}};
  write_safetensors(dir / "m", tensors, {{"k", "v"}});
  const std::string whole = read_text(dir / "m");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(Safetensors{MemoryFile(whole.substr(0, size)).path()}, Error) << size;
  }
  EXPECT_THROW(Safetensors{dir.write("long", whole + "x")}, Error);
}

TEST(Safetensors, EveryFlippedBitIsReadOrRefused) {
  const ScratchDir dir;
  const std::vector<float> values{1, 2, 3};
  const std::vector<NamedTensor> tensors{{"a", DType::kF32, {3}, bytes_of(values)}};
  write_safetensors(dir / "m", tensors, {{"k", "v"}});
  const std::string whole = read_text(dir / "m");
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string bytes = whole;
    bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << i % 8));
    try {
      const MemoryFile memory(bytes);
      const Safetensors file(memory.path());
      for (const NamedTensor& t : file.tensors()) checksum(t.bytes);
    } catch (const Error&) {
    }
  }
}

struct Lie {
  const char* header;
  size_t data_bytes;
  const char* message;
};

void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.message; }

class SafetensorsLie : public testing::TestWithParam<Lie> {};

TEST_P(SafetensorsLie, IsRefused) {
  const ScratchDir dir;
  const auto path = dir.write("lie", with_header(GetParam().header, GetParam().data_bytes));
  EXPECT_THAT(error_of([&] { Safetensors{path}; }), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsLie,
    testing::Values(
        Lie{R"([])", 0, "not a JSON object"}, Lie{R"({"a":})", 0, "not valid JSON"},
        Lie{R"({"a":{"a":{"a":{"a":{}}}}})", 0, "inside each other"}, Lie{R"({"a":1})", 0, "not an object"},
        Lie{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "2 fields"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offset":[0,4]}})", 4, "data_offsets"},
        Lie{R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "\"F31\""},
        Lie{R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4, "dtype"},
        Lie{R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "-1"},
        Lie{R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "1.0"},
        Lie{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "not possible"},
        Lie{R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "cannot lie"},
        Lie{R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, "cannot lie"},
        Lie{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8 bytes but has 4"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "4..0"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "0..8 of 4"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8, "3 data_offsets"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0",4]}})", 4, "\"0\""},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "begins at byte 4"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "end at byte 4"},
        Lie{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
            8, "begins at byte 4"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            4, "begins at byte 0"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
            12, "begins at byte 8"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
            8, "\"a\" twice"},
        Lie{R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4, "\"dtype\" twice"},
        Lie{R"({"__metadata__":[]})", 0, "__metadata__"}, Lie{R"({"__metadata__":{"a":1}})", 0, "not text"}));

TEST(Safetensors, HeaderLengthIsChecked) {
  const ScratchDir dir;
  EXPECT_THAT(error_of([&] { Safetensors{dir.write("a", little_endian(uint64_t{3}) + "{}")}; }),
              HasSubstr("only 2 follow"));
  EXPECT_THAT(error_of([&] { Safetensors{dir.write("a", little_endian(UINT64_MAX) + "{}")}; }), HasSubstr("limit"));
  EXPECT_THAT(error_of([&] { Safetensors{dir.write("a", "")}; }), HasSubstr("too few"));
}

// Quadratic reading or writing of these would take minutes.
TEST(Safetensors, TensOfThousandsOfTensors) {
  const ScratchDir dir;
  std::vector<NamedTensor> tensors;
  const std::vector<float> values(40'000, 1.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back({fmt::format("tensor.{}", i), DType::kF32, {1}, std::as_bytes(std::span(&values[i], 1))});
  }
  write_safetensors(dir / "m", tensors);
  const Safetensors file(dir / "m");
  EXPECT_EQ(file.tensors().size(), values.size());
  EXPECT_EQ(file.at("tensor.39999").shape, Shape({1}));
}

TEST(Safetensors, UnalignedDataIsRead) {
  const ScratchDir dir;
  std::string bytes = with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )", 0);
  while ((bytes.size()) % 8 != 3) bytes.insert(bytes.size() - 1, " ");
  bytes.replace(0, 8, little_endian(uint64_t{bytes.size() - 8}));
  bytes += little_endian(1.5f) + little_endian(-2.0f);
  const Safetensors file(dir.write("odd", bytes));
  std::vector<float> out(2);
  file.read("a", out);
  EXPECT_THAT(out, ElementsAre(1.5f, -2.0f));
}

}  // namespace
}  // namespace longshot
