#include "formats/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/torch_builder.h"
#include "formats/torch_samples.h"
#include "references.h"

namespace longshot {
namespace {

using namespace build;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> floats_of(const TorchTensor& t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  copy_to_float(t, out);
  return out;
}

std::string refusal(const std::string& bytes) {
  const MemoryFile file(bytes);
  return error_of([&] { TorchFile{file.path()}; });
}

class TorchSample : public testing::TestWithParam<std::string_view> {};

TEST_P(TorchSample, IsReadAsWritten) {
  const ScratchDir dir;
  const TorchFile file(dir.write("x.pt", decode_base64(GetParam())));
  EXPECT_EQ(file.container() == TorchFile::Container::kZip, GetParam() == kTorchZip);
  const PickleItems* items = pickle_fields(file.root());
  ASSERT_TRUE(items);
  const auto tensor = [&](std::string_view key) { return *file.tensor(find_field(*items, key)); };

  const PickleItems* args = pickle_fields(find_field(*items, "args"));
  ASSERT_TRUE(args);
  EXPECT_EQ(pickle_text(find_field(*args, "arch")), "a");
  EXPECT_EQ(pickle_int(find_field(*args, "n")), 7);

  EXPECT_EQ(tensor("t").shape, Shape({3, 2}));
  EXPECT_FALSE(tensor("t").is_contiguous());
  EXPECT_THAT(floats_of(tensor("t")), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(floats_of(tensor("row")), ElementsAre(3, 4, 5));
  EXPECT_THAT(floats_of(tensor("p")), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(tensor("t").storage.data(), tensor("p").storage.data());
  EXPECT_EQ(tensor("h").dtype, DType::kF16);
  EXPECT_THAT(floats_of(tensor("h")), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(tensor("b").dtype, DType::kBF16);
  EXPECT_EQ(tensor("b").shape, Shape());
  EXPECT_THAT(floats_of(tensor("b")), ElementsAre(3.0f));
  EXPECT_THAT(floats_of(tensor("d")), ElementsAre(0.1f));
  EXPECT_EQ(tensor("i").dtype, DType::kI64);
  EXPECT_THAT(error_of([&] { floats_of(tensor("i")); }), HasSubstr("I64"));

  EXPECT_TRUE(same_content(tensor("t"), tensor("t")));
  EXPECT_FALSE(same_content(tensor("t"), tensor("p")));
  EXPECT_EQ(file.tensor(find_field(*items, "odd")), nullptr);
  EXPECT_EQ(pickle_int(find_field(*pickle_fields(find_field(*items, "odd")), "n")), 3);
  EXPECT_EQ(pickle_int(find_field(*items, "big")), INT64_MAX);
  EXPECT_TRUE(find_field(*items, "bigger")->get<PickleLong>());
  EXPECT_EQ(pickle_int(find_field(*items, "neg")), -5000000000);
}

TEST_P(TorchSample, EveryTruncationIsRefused) {
  const std::string whole = decode_base64(GetParam());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(TorchFile{MemoryFile(whole.substr(0, size)).path()}, Error) << size;
  }
}

TEST_P(TorchSample, EveryChangedByteIsReadOrRefused) {
  const std::string whole = decode_base64(GetParam());
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      try {
        const MemoryFile memory(bytes);
        const TorchFile file(memory.path());
        if (const PickleItems* items = pickle_fields(file.root())) {
          for (const auto& [key, value] : *items) {
            const TorchTensor* t = file.tensor(value);
            if (t && is_floating(t->dtype)) floats_of(*t);
          }
        }
      } catch (const Error&) {
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Containers, TorchSample, testing::Values(kTorchZip, kTorchStream));

TEST(TorchFile, Zip64IsRead) {
  const ScratchDir dir;
  const std::string body = tensor(storage("FloatStorage", "0", 3), 1, {2}, {1});
  const TorchFile file(
      dir.write("x.pt", zip({{"a/b/data.pkl", pickle(body)}, {"a/b/data/0", floats({1, 2, 3})}}, true)));
  EXPECT_THAT(floats_of(*file.tensor(file.root())), ElementsAre(2, 3));
}

TEST(TorchFile, StridesOfEveryKind) {
  const ScratchDir dir;
  const std::string all = storage("FloatStorage", "0", 12) + keep(1);
  const std::string body = tuple({tensor(all, 0, {2, 2, 3}, {6, 3, 1}), tensor(recall(1), 0, {3, 2, 2}, {1, 6, 3}),
                                  tensor(recall(1), 1, {2, 3}, {0, 2}), tensor(recall(1), 11, {1, 1}, {7, 9}),
                                  tensor(recall(1), 5, {0, 4}, {4, 1}), tensor(recall(1), 4, {}, {})});
  const TorchFile file(dir.write("x.pt", torch_zip(body, {{"0", floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})}})));
  const auto& t = file.root()->get<PickleSequence>()->elements;
  EXPECT_THAT(floats_of(*file.tensor(t[0])), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(floats_of(*file.tensor(t[1])), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
  EXPECT_THAT(floats_of(*file.tensor(t[2])), ElementsAre(1, 3, 5, 1, 3, 5));
  EXPECT_THAT(floats_of(*file.tensor(t[3])), ElementsAre(11));
  EXPECT_THAT(floats_of(*file.tensor(t[4])), ElementsAre());
  EXPECT_THAT(floats_of(*file.tensor(t[5])), ElementsAre(4));
  EXPECT_TRUE(same_content(*file.tensor(t[4]), *file.tensor(t[4])));
}

TEST(TorchFile, SameContentComparesValuesNotPlaces) {
  const ScratchDir dir;
  const std::string body = tuple({tensor(storage("FloatStorage", "0", 4), 0, {2, 2}, {2, 1}),
                                  tensor(storage("FloatStorage", "1", 4), 0, {2, 2}, {1, 2}),
                                  tensor(storage("FloatStorage", "2", 4), 0, {2, 2}, {2, 1})});
  const TorchFile file(dir.write(
      "x.pt",
      torch_zip(body, {{"0", floats({1, 2, 3, 4})}, {"1", floats({1, 3, 2, 4})}, {"2", floats({1, 2, 3, 5})}})));
  const auto& t = file.root()->get<PickleSequence>()->elements;
  EXPECT_TRUE(same_content(*file.tensor(t[0]), *file.tensor(t[1])));
  EXPECT_FALSE(same_content(*file.tensor(t[0]), *file.tensor(t[2])));
}

TEST(TorchFile, WrongTensorsAreRefused) {
  const auto with = [](const std::string& body) { return refusal(torch_zip(body, {{"0", floats({1, 2, 3, 4})}})); };
  const std::string four = storage("FloatStorage", "0", 4);
  EXPECT_THAT(with(tensor(four, 0, {5}, {1})), HasSubstr("leaves storage 0 of 4"));
  EXPECT_THAT(with(tensor(four, 1, {4}, {1})), HasSubstr("from element 1"));
  EXPECT_THAT(with(tensor(four, 0, {2}, {4})), HasSubstr("leaves storage"));
  EXPECT_THAT(with(tensor(four, 0, {2}, {INT64_MAX})), HasSubstr("leaves storage"));
  EXPECT_THAT(with(tensor(four, INT64_MAX, {2}, {1})), HasSubstr("leaves storage"));
  EXPECT_THAT(with(tensor(four, -1, {2}, {1})), HasSubstr("offset"));
  EXPECT_THAT(with(tensor(four, 0, {-2}, {1})), HasSubstr("shape"));
  EXPECT_THAT(with(tensor(four, 0, {2}, {-1})), HasSubstr("strides"));
  EXPECT_THAT(with(tensor(four, 0, {2, 2}, {1})), HasSubstr("strides"));
  EXPECT_THAT(with(tensor(four, 0, {int64_t{1} << 40}, {0})), HasSubstr("more than a file"));
  EXPECT_THAT(with(tensor(four, 0, {int64_t{1} << 40, int64_t{1} << 40}, {0, 0})), HasSubstr("more than a file"));
  EXPECT_THAT(with(tensor(text("0"), 0, {1}, {1})), HasSubstr("storage"));
  EXPECT_THAT(with(tensor(storage("FloatStorage", "0", 5), 0, {1}, {1})), HasSubstr("cannot have 16 bytes"));
  EXPECT_THAT(with(tensor(storage("HalfStorage", "0", 4), 0, {1}, {1})), HasSubstr("cannot have 16 bytes"));
  EXPECT_THAT(with(tensor(storage("FloatStorage", "0", INT64_MAX), 0, {1}, {1})), HasSubstr("cannot have 16 bytes"));
  EXPECT_THAT(with(tensor(storage("FloatStorage", "1", 4), 0, {1}, {1})), HasSubstr("not in the archive"));
  EXPECT_THAT(with(tensor(storage("ComplexFloatStorage", "0", 2), 0, {1}, {1})), HasSubstr("element type"));
  EXPECT_THAT(with(tuple({four, storage("IntStorage", "0", 4)})), HasSubstr("in one place"));
  EXPECT_THAT(with(call(global("torch._utils", "_rebuild_tensor_v2"), {four})), HasSubstr("1 parts"));
  EXPECT_THAT(with(call(global("torch._utils", "_rebuild_parameter"), {"N"})), HasSubstr("parameter"));
  EXPECT_THAT(with(text("x") + "Q"), HasSubstr("persistent id"));
}

TEST(TorchFile, HostilePickleInsideIsRefused) {
  EXPECT_THAT(refusal(torch_zip(call(global("os", "system"), {text("rm -rf /")}))), HasSubstr("os.system"));
}

TEST(TorchFile, WrongArchivesAreRefused) {
  const std::string root = pickle("N");
  EXPECT_THAT(refusal(zip({{"a/x", "1"}})), HasSubstr("without data.pkl"));
  EXPECT_THAT(refusal(zip({{"a/data.pkl", root}, {"b/data.pkl", root}})), HasSubstr("two pickles"));
  EXPECT_THAT(refusal(zip({{"a/data.pkl", root}, {"a/data.pkl", root}})), HasSubstr("two zip entries"));
  EXPECT_THAT(refusal(zip({{"a/data.pkl", root, 8}})), HasSubstr("compressed"));
  EXPECT_THAT(refusal(zip({{"a/data.pkl", root, 0, 1}})), HasSubstr("encrypted"));
  EXPECT_THAT(refusal(zip({{"a/data.pkl", root}, {"a/byteorder", "big"}})), HasSubstr("byte order"));
  EXPECT_THAT(refusal("PK\x03\x04"), HasSubstr("too few"));
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(1000, 'x')), HasSubstr("no end record"));
  EXPECT_THAT(refusal(""), HasSubstr("neither a zip nor a stream"));
  EXPECT_THAT(refusal("not a model"), HasSubstr("neither a zip nor a stream"));
}

// Finds `pattern` at or behind `from` and writes `value` at the given distance behind it.
template <class T>
std::string patched(std::string bytes, std::string_view pattern, size_t distance, T value) {
  const size_t at = bytes.find(pattern);
  EXPECT_NE(at, std::string::npos);
  return bytes.replace(at + distance, sizeof value, little_endian(value));
}

TEST(TorchFile, LyingZipDirectoriesAreRefused) {
  const std::string good =
      torch_zip(tensor(storage("FloatStorage", "0", 4), 0, {4}, {1}), {{"0", floats({1, 2, 3, 4})}});
  const std::string_view central("PK\x01\x02"), end("PK\x05\x06");
  EXPECT_THAT(refusal(patched(good, central, 24, UINT32_MAX - 1)), HasSubstr("compressed"));
  EXPECT_THAT(refusal(patched(patched(good, central, 24, UINT32_MAX - 1), central, 20, UINT32_MAX - 1)),
              HasSubstr("the file has"));
  EXPECT_THAT(refusal(patched(patched(good, central, 24, UINT32_MAX), central, 20, UINT32_MAX)),
              HasSubstr("does not say its size"));
  EXPECT_THAT(refusal(patched(good, central, 42, uint32_t{1})), HasSubstr("no header at byte 1"));
  EXPECT_THAT(refusal(patched(good, central, 42, UINT32_MAX - 5)), HasSubstr("the file has"));
  EXPECT_THAT(refusal(patched(good, central, 0, uint32_t{0})), HasSubstr("signature"));
  EXPECT_THAT(refusal(patched(good, end, 10, uint16_t{9999})), HasSubstr("9999 entries"));
  EXPECT_THAT(refusal(patched(good, end, 16, UINT32_MAX)), HasSubstr("the file has"));
  EXPECT_THAT(refusal(patched(good, "archive/data.pkl", 0, 'b')), HasSubstr("another name"));
}

TEST(TorchFile, ChecksumsAreChecked) {
  const std::string good =
      torch_zip(tensor(storage("FloatStorage", "0", 4), 0, {4}, {1}), {{"0", floats({1, 2, 3, 4})}});
  const auto verified = [](const std::string& bytes) {
    const MemoryFile memory(bytes);
    TorchFile(memory.path()).verify_checksums();
  };
  EXPECT_NO_THROW(verified(good));
  EXPECT_NO_THROW(verified(decode_base64(kTorchZip)));
  EXPECT_NO_THROW(verified(decode_base64(kTorchStream)));

  std::string bad = good;
  bad[good.find(floats({2, 3})) + 1] ^= 1;
  EXPECT_THAT(error_of([&] { verified(bad); }), AllOf(HasSubstr("archive/data/0"), HasSubstr("is damaged")));
  bad = good;
  bad[good.find("_rebuild_tensor_v2") + 1] ^= 1;
  EXPECT_THAT(refusal(bad), AllOf(HasSubstr("data.pkl"), HasSubstr("checksum")));
  // 0 is a checksum like any other, unless every entry has it: PyTorch was told to record none.
  EXPECT_THAT(refusal(patched(good, "PK\x01\x02", 16, uint32_t{0})), HasSubstr("not the 00000000"));
  bad = good;
  for (size_t at = bad.find("PK\x01\x02"); at != std::string::npos; at = bad.find("PK\x01\x02", at + 1)) {
    bad.replace(at + 16, 4, std::string(4, '\0'));
  }
  EXPECT_NO_THROW(verified(bad));
}

// What the file says a storage is called is compared with every other name.
TEST(TorchFile, LongNamesOfStoragesAreRefused) {
  const std::string key(40'000, 'k');
  EXPECT_THAT(refusal(torch_zip(storage("FloatStorage", key, 1), {{key, floats({1})}})), HasSubstr("no key"));
}

// Two directory entries that hand out the same bytes: the core of an overlapping zip bomb.
TEST(TorchFile, OverlappingEntriesAreRefused) {
  const std::string inner = zip({{"archive/data/1", floats({5, 6})}});
  const std::string outer_data = inner.substr(0, inner.find("PK\x01\x02"));  // a local header and its data
  const auto words = static_cast<int64_t>(outer_data.size()) / 4;
  const std::string body = tuple({storage("FloatStorage", "0", words), storage("FloatStorage", "1", 2)});
  std::string file = torch_zip(body, {{"0", outer_data}, {"1", floats({5, 6})}});
  const size_t planted = file.find("PK\x03\x04", file.find("archive/data/0"));
  const size_t entry = file.rfind("archive/data/1") - 46;
  EXPECT_NO_THROW({
    const ScratchDir dir;
    TorchFile{dir.write("x.pt", file)};
  });
  file.replace(entry + 42, 4, little_endian(static_cast<uint32_t>(planted)));
  EXPECT_THAT(refusal(file), HasSubstr("overlap"));
}

std::string stream(const std::string& body, const Strings& keys, const std::string& data, bool little = true,
                   int64_t protocol = 1001) {
  Strings key_texts;
  for (const std::string& k : keys) key_texts.push_back(text(k));
  return pickle("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") + pickle(number(protocol)) +
         pickle(dict({{"little_endian", boolean(little)}})) + pickle(body) + pickle(list(key_texts)) + data;
}

std::string stream_storage(std::string_view type, std::string_view key, int64_t elements, const std::string& view) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), number(elements), view}) + "Q";
}

TEST(TorchFile, StreamViewsAreRead) {
  const ScratchDir dir;
  const std::string view = stream_storage("FloatStorage", "7", 4, tuple({text("9"), number(1), number(3)}));
  const std::string body = tensor(view, 1, {2}, {1});
  const TorchFile file(dir.write("x.pt", stream(body, {"7"}, little_endian(int64_t{4}) + floats({1, 2, 3, 4}))));
  EXPECT_THAT(floats_of(*file.tensor(file.root())), ElementsAre(3, 4));
}

TEST(TorchFile, WrongStreamsAreRefused) {
  const std::string body = tensor(stream_storage("FloatStorage", "7", 2, none()), 0, {2}, {1});
  const std::string data = little_endian(int64_t{2}) + floats({1, 2});
  EXPECT_THAT(refusal(stream(body, {"7"}, data, false)), HasSubstr("little-endian"));
  EXPECT_THAT(refusal(stream(body, {"7"}, data, true, 1002)), HasSubstr("protocol"));
  EXPECT_THAT(refusal(stream(body, {}, data)), HasSubstr("storage 7 is not in the file"));
  EXPECT_THAT(refusal(stream(body, {"7", "7"}, data)), HasSubstr("comes twice"));
  EXPECT_THAT(refusal(stream(body, {"8"}, data)), HasSubstr("nothing refers to the storage 8"));
  EXPECT_THAT(refusal(stream(body, {"7"}, little_endian(int64_t{3}) + floats({1, 2}))), HasSubstr("has 3 elements"));
  EXPECT_THAT(refusal(stream(body, {"7"}, data.substr(0, 12))), HasSubstr("4 bytes left"));
  const std::string huge = tensor(stream_storage("FloatStorage", "7", INT64_MAX, none()), 0, {2}, {1});
  EXPECT_THAT(refusal(stream(huge, {"7"}, little_endian(INT64_MAX) + floats({1, 2}))), HasSubstr("8 bytes left"));
  const std::string outside = stream_storage("FloatStorage", "7", 2, tuple({text("9"), number(1), number(2)}));
  EXPECT_THAT(refusal(stream(tensor(outside, 0, {1}, {1}), {"7"}, data)), HasSubstr("does not lie inside"));
}

TEST(TorchFile, ReferenceCheckpointsAreMappedNotCopied) {
  const TorchFile file(kFixtures / "checkpoints/alibi.pt");
  const PickleItems* model = pickle_fields(find_field(*pickle_fields(file.root()), "model"));
  ASSERT_TRUE(model);
  EXPECT_EQ(model->size(), 49u);
  const TorchTensor& words = *file.tensor(find_field(*model, "decoder.embed_tokens.embeddings.0.0.weight"));
  const TorchTensor& tied = *file.tensor(find_field(*model, "decoder.adaptive_softmax.head.word_proj.weight"));
  EXPECT_EQ(words.shape, Shape({60, 24}));
  EXPECT_EQ(words.storage.data(), tied.storage.data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(words.storage.data()) % 64, 0u);
  double sum = 0;
  for (const float v : floats_of(words)) sum += std::abs(v);
  EXPECT_GT(sum, 0.0);
}

}  // namespace
}  // namespace longshot
