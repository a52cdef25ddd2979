#include "formats/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "formats/torch_builder.h"

namespace longshot {
namespace {

using namespace build;
using testing::HasSubstr;

std::span<const std::byte> as_bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

std::string refusal(const std::string& bytes) {
  return error_of([&] { Pickle(as_bytes(bytes), "x.pkl"); });
}

TEST(Pickle, ScalarsAndContainers) {
  const std::string bytes =
      pickle(tuple({none(), boolean(true), "K\xff", "M\xff\xff", std::string("J\xfe\xff\xff\xff", 5), number(INT64_MIN),
                    "\x8a" + std::string(1, '\0'), std::string("\x8a\x02\x00\xff", 4), real(-0.1), text("é"),
                    std::string("C\x02") + "ab", list({"K\x01", "K\x02"}), dict({{"a", "K\x07"}}),
                    "\x8a\x09" + std::string(8, '\0') + "\x01"}));
  const Pickle p(as_bytes(bytes), "x.pkl");
  EXPECT_EQ(p.size(), bytes.size());
  const auto* root = p.root()->get<PickleSequence>();
  ASSERT_TRUE(root && root->kind == PickleSequence::Kind::kTuple);
  const auto& v = root->elements;
  EXPECT_TRUE(v[0]->get<PickleNone>());
  EXPECT_TRUE(*v[1]->get<bool>());
  EXPECT_EQ(pickle_int(v[2]), 255);
  EXPECT_EQ(pickle_int(v[3]), 65535);
  EXPECT_EQ(pickle_int(v[4]), -2);
  EXPECT_EQ(pickle_int(v[5]), INT64_MIN);
  EXPECT_EQ(pickle_int(v[6]), 0);
  EXPECT_EQ(pickle_int(v[7]), -256);
  EXPECT_EQ(pickle_number(v[8]), -0.1);
  EXPECT_EQ(pickle_text(v[9]), "é");
  EXPECT_EQ(v[10]->get<PickleBytes>()->data, "ab");
  EXPECT_EQ(v[11]->get<PickleSequence>()->elements.size(), 2u);
  EXPECT_EQ(pickle_int(find_field(*pickle_fields(v[12]), "a")), 7);
  EXPECT_EQ(find_field(*pickle_fields(v[12]), "b"), nullptr);
  EXPECT_EQ(v[13]->get<PickleLong>()->little_endian.size(), 9u);
}

TEST(Pickle, ProtocolFourFramesNamesAndMemo) {
  const std::string bytes = "\x80\x04\x95" + little_endian(uint64_t{99}) +
                            "\x8c\x08"
                            "argparse\x8c\x09"
                            "Namespace\x93\x94)\x81}\x94(\x8c\x01"
                            "a\x94K\x05u\x62.";
  const Pickle p(as_bytes(bytes), "x.pkl");
  const auto* record = p.root()->get<PickleRecord>();
  ASSERT_TRUE(record);
  EXPECT_TRUE(is_global(record->callable, "argparse", "Namespace"));
  EXPECT_EQ(pickle_int(find_field(*pickle_fields(p.root()), "a")), 5);
}

TEST(Pickle, SharedValuesAreShared) {
  const std::string bytes = pickle(tuple({list({}) + keep(1), recall(1)}));
  const Pickle p(as_bytes(bytes), "x.pkl");
  const auto& v = p.root()->get<PickleSequence>()->elements;
  EXPECT_EQ(v[0], v[1]);
}

TEST(Pickle, OrderedDictOfPythonTwoAndThree) {
  const std::string ordered = global("collections", "OrderedDict");
  const std::string pairs = list({list({text("a"), "K\x01"}), list({text("b"), "K\x02"})});
  for (const std::string& body :
       {call(ordered, {pairs}), call(ordered, {}) + "(" + text("a") + "K\x01" + text("b") + "K\x02u"}) {
    const std::string bytes = pickle(body);
    const Pickle p(as_bytes(bytes), "x.pkl");
    ASSERT_TRUE(pickle_fields(p.root()));
    EXPECT_EQ(pickle_fields(p.root())->size(), 2u);
    EXPECT_EQ(pickle_int(find_field(*pickle_fields(p.root()), "b")), 2);
  }
}

TEST(Pickle, UnknownClassesBecomeRecords) {
  const std::string bytes = pickle(call(global("some.module", "Thing"), {"K\x01"}) + dict({{"x", "K\x02"}}) + "b");
  const Pickle p(as_bytes(bytes), "x.pkl");
  const auto* record = p.root()->get<PickleRecord>();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->callable.name, "Thing");
  EXPECT_EQ(pickle_int(record->arguments->get<PickleSequence>()->elements[0]), 1);
  EXPECT_EQ(pickle_int(find_field(*pickle_fields(p.root()), "x")), 2);
}

TEST(Pickle, HostileNamesAreRefused) {
  for (const auto& [module, name] : {std::pair("os", "system"),
                                     {"posix", "system"},
                                     {"nt", "system"},
                                     {"subprocess", "Popen"},
                                     {"builtins", "eval"},
                                     {"__builtin__", "exec"},
                                     {"builtins", "__import__"},
                                     {"importlib.util", "find_spec"},
                                     {"os.path", "join"}}) {
    const std::string body = call(global(module, name), {text("touch /tmp/pwned")});
    EXPECT_THAT(refusal(pickle(body)), HasSubstr(std::string(module) + "." + name));
    const std::string by_stack = text(module) + text(name) + "\x93";
    EXPECT_THAT(refusal("\x80\x04" + by_stack + "."), HasSubstr("do not trust"));
  }
  const std::string innocent = pickle(global("builtins", "int"));
  EXPECT_NO_THROW(Pickle(as_bytes(innocent), "x.pkl"));
}

TEST(Pickle, CyclesAreRefused) {
  EXPECT_THAT(refusal(pickle("]" + keep(0) + recall(0) + "a")), HasSubstr("contains itself"));
  EXPECT_THAT(refusal(pickle("}" + keep(0) + text("k") + recall(0) + "s")), HasSubstr("contains itself"));
  const std::string through_tuple = "]" + keep(0) + "(" + recall(0) + "tq\x01" + "a";
  EXPECT_THAT(refusal(pickle(through_tuple)), HasSubstr("contains itself"));
  const std::string through_state = call(global("m", "C"), {}) + keep(0) + "}" + text("me") + recall(0) + "sb";
  EXPECT_THAT(refusal(pickle(through_state)), HasSubstr("contains itself"));
  EXPECT_THAT(refusal(pickle("]" + keep(0) + recall(0) + "a0N")),
              HasSubstr("contains itself"));  // dropped, too
}

TEST(Pickle, DepthIsLimited) {
  const auto nested = [](int depth) {
    std::string body = "N";
    for (int i = 1; i < depth; ++i) body += "\x85";
    return pickle(body);
  };
  const std::string allowed = nested(Pickle::kMaxDepth);
  EXPECT_NO_THROW(Pickle(as_bytes(allowed), "x.pkl"));
  EXPECT_THAT(refusal(nested(Pickle::kMaxDepth + 1)), HasSubstr("deeper"));
  EXPECT_THAT(refusal(nested(15000)), HasSubstr("deeper"));
  EXPECT_THAT(refusal(nested(1000000)), HasSubstr("more than 510001 values"));
}

TEST(Pickle, SizeIsLimited) {
  const std::string many = pickle("(" + joined(Strings(Pickle::kMaxNodes + 1, "K1")) + "t");
  EXPECT_THAT(refusal(many), HasSubstr("more than 4194304 values"));
  EXPECT_THAT(refusal(pickle("(" + std::string(100'000, ']') + "t")), HasSubstr("more than 60002 values"));
  const std::string shared = pickle("(" + std::string(100'000, 'N') + std::string(100'000, ')') + "t");
  EXPECT_EQ(Pickle(as_bytes(shared), "x.pkl").nodes().size(), 3u);
  const std::string recalls = pickle("(N" + keep(0) + joined(Strings(Pickle::kMaxNodes, recall(0))) + "t");
  EXPECT_THAT(refusal(recalls), HasSubstr("stack"));
  std::string copies = list(Strings(100000, "N")) + keep(0) + "0" + global("builtins", "set") + keep(1) + "0(";
  for (int i = 0; i < 100; ++i) copies += recall(1) + recall(0) + "\x85R";
  EXPECT_THAT(refusal(pickle(copies + "t")), HasSubstr("copies"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Pickle, MemoryIsBoundByTheBytes) {
  for (const std::string part : {"K1", "]K1a", "}(K1K2u", ")", "]", "K1q\x01", "cA\nB\n)R"}) {
    const std::string bytes = pickle("(" + joined(Strings(200'000 / part.size(), part)) + "t");
    const auto before = mallinfo2();
    size_t after = before.uordblks + before.hblkhd;
    try {
      const Pickle read(as_bytes(bytes), "x.pkl");
      after = mallinfo2().uordblks + mallinfo2().hblkhd;
    } catch (const Error&) {
    }
    EXPECT_LT(after - before.uordblks - before.hblkhd, 100 * bytes.size() + 100 * Pickle::kFreeNodes) << part;
  }
}
#endif

// Keys that meet in one bucket of a hash table made reading quadratic.
TEST(Pickle, KeysOfTheMemoMayBeAnything) {
  std::string body = "N";
  for (uint64_t i = 0; i < 60'000; ++i) body += "r" + little_endian(static_cast<uint32_t>(i * 62'233));
  EXPECT_EQ(Pickle(as_bytes(body = pickle(body)), "x.pkl").nodes().size(), 1u);
}

TEST(Pickle, DoublingTreeStaysSmall) {
  std::string body = "N";
  for (int i = 0; i < 200; ++i) body += "2\x86";  // x -> (x, x): 2^200 leaves by reference
  const std::string bytes = pickle(body);
  const Pickle p(as_bytes(bytes), "x.pkl");
  EXPECT_EQ(p.nodes().size(), 201u);
}

TEST(Pickle, BrokenMachinesAreRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("are left"));
  EXPECT_THAT(refusal("\x80\x02N"), HasSubstr("are left"));
  EXPECT_THAT(refusal("\x80\x02."), HasSubstr("0 values"));
  EXPECT_THAT(refusal(pickle("NN")), HasSubstr("2 values"));
  EXPECT_THAT(refusal(pickle("(N")), HasSubstr("instead of one"));
  EXPECT_THAT(refusal("\x80\x06N."), HasSubstr("protocol 6"));
  EXPECT_THAT(refusal(pickle("t")), HasSubstr("mark"));
  EXPECT_THAT(refusal(pickle("N(a")), HasSubstr("values"));
  EXPECT_THAT(refusal(pickle("NNa")), HasSubstr("not a list"));
  EXPECT_THAT(refusal(pickle(")Na")), HasSubstr("not a list"));
  EXPECT_THAT(refusal(pickle("}(Nu")), HasSubstr("1 keys and values"));
  EXPECT_THAT(refusal(pickle("NNNs")), HasSubstr("not a dict"));
  EXPECT_THAT(refusal(pickle(recall(3))), HasSubstr("never kept"));
  EXPECT_THAT(refusal(pickle("N)R")), HasSubstr("not a named class"));
  EXPECT_THAT(refusal(pickle(global("a", "B") + "NR")), HasSubstr("not a named class"));
  EXPECT_THAT(refusal(pickle("NN\x93")), HasSubstr("not text"));
  EXPECT_THAT(refusal(pickle("X\xff\xff\xff\xff")), HasSubstr("4294967295 bytes"));
  EXPECT_THAT(refusal(pickle("\x8d" + little_endian(UINT64_MAX))), HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(refusal("\x80\x02"
                      "cmodule"),
              HasSubstr("does not end"));
  EXPECT_THAT(refusal(pickle("I1\n")), HasSubstr("opcode 0x49"));
  EXPECT_THAT(refusal(pickle(call(global("collections", "OrderedDict"), {"N"}))), HasSubstr("pairs"));
}

}  // namespace
}  // namespace longshot
