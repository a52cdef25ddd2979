// Reads a Python pickle as data. Nothing in it is executed: a call of an unknown class becomes an inert
// record, and the name of a function that only an attack would call is refused.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace longshot {

struct PickleNode;
using PickleValue = const PickleNode*;  // owned by the Pickle; never null inside one, except where stated
using PickleItems = std::vector<std::pair<PickleValue, PickleValue>>;

struct PickleNone {};

struct PickleLong {  // beyond 64 bits
  std::string_view little_endian;
};

struct PickleBytes {
  std::string_view data;
};

struct PickleSequence {
  enum class Kind { kTuple, kList, kSet } kind;
  std::vector<PickleValue> elements;
};

struct PickleDict {
  PickleItems items;  // in file order; a repeated key is not merged
};

struct PickleGlobal {  // a class or function, by name only
  std::string_view module, name;
};

struct PickleReference {  // a persistent id: what it stands for lies outside of the pickle
  PickleValue id;
};

// What calling `callable` would have made.
struct PickleRecord {
  PickleGlobal callable;
  PickleValue arguments;              // a tuple
  PickleValue state = nullptr;        // given to __setstate__, mostly a dict of attributes; null when there is none
  std::vector<PickleValue> elements;  // appended
  PickleItems items;                  // set by key
};

struct PickleNode {
  std::variant<PickleNone, bool, int64_t, double, std::string_view, PickleBytes, PickleLong, PickleSequence, PickleDict,
               PickleGlobal, PickleReference, PickleRecord>
      value;

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
};

// The tree of one pickle: acyclic, its depth limited, shared parts shared. It points into the bytes it was
// read from.
class Pickle {
 public:
  // A value takes some hundred bytes: at most one for every two bytes of the pickle, beside a few for small ones.
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr size_t kMaxNodes = size_t{4} << 20, kFreeNodes = 10'000;
  static constexpr int kMaxDepth = 500;

  // Reads one pickle from the front of `bytes`. `name` stands in front of every message.
  Pickle(std::span<const std::byte> bytes, const std::string& name);

  PickleValue root() const { return root_; }
  size_t size() const { return size_; }                           // bytes taken
  const std::deque<PickleNode>& nodes() const { return nodes_; }  // parts stand before what contains them

 private:
  friend class PickleMachine;
  std::deque<PickleNode> nodes_;
  PickleValue root_ = nullptr;
  size_t size_ = 0;
};

// The values of an object with named parts: a dict, or an instance whose state is one (argparse.Namespace).
// Null for anything else.
const PickleItems* pickle_fields(PickleValue value);
PickleValue find_field(const PickleItems& items,
                       std::string_view key);  // null when absent; the last one counts

std::optional<std::string_view> pickle_text(PickleValue value);
std::optional<int64_t> pickle_int(PickleValue value);
std::optional<double> pickle_number(PickleValue value);  // an int or a float
bool is_global(const PickleGlobal& global, std::string_view module, std::string_view name);
bool is_builtin(const PickleGlobal& global, std::string_view name);
bool is_hostile(const PickleGlobal& global);  // names what only an attack would call

}  // namespace longshot
