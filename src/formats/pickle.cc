#include "formats/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

using Kind = PickleSequence::Kind;

// Opcodes of protocols 2 to 5 as Python's pickletools names them.
enum Op : unsigned char {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersistentId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kBinFloat = 'G',
  kProtocol = 0x80,
  kNewObject = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjectEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

}  // namespace

// Python's pickle machine: a stack, marks on it, and a memo; calls make records instead of objects.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::span<const std::byte> bytes, const std::string& name)
      : pickle_(pickle),
        bytes_(bytes.first(std::min(bytes.size(), Pickle::kMaxBytes))),
        most_nodes_(std::min(Pickle::kMaxNodes, Pickle::kFreeNodes + bytes_.size() / 2)),
        name_(name) {}

  void run() {
    for (;;) {
      const auto op = static_cast<Op>(take<uint8_t>());
      if (op == kStop) break;
      step(op);
    }
    require(stack_.size() == 1 && marks_.empty(), "{}: the pickle ends with {} values instead of one", name_,
            stack_.size());
    pickle_.root_ = stack_[0];
    pickle_.size_ = at_;
    check_depth();
  }

 private:
  using Values = std::vector<PickleNode*>;

  void step(Op op) {
    if (scalar(op) || container(op) || memo(op) || object(op)) return;
    switch (op) {
      case kProtocol: {
        const int protocol = take<uint8_t>();
        require(protocol >= 2 && protocol <= 5, "{}: pickle protocol {} is not one of 2 to 5", name_, protocol);
        return;
      }
      case kFrame:
        take<uint64_t>();
        return;
      case kMark:
        marks_.push_back(stack_.size());
        return;
      case kPop:
        pop();
        return;
      case kPopMark:
        pop_to_mark();
        return;
      case kDup:
        return push_again(top());
      default:
        fail("{}: byte {}: pickle opcode 0x{:02x} is not one of those PyTorch writes. Is the file damaged?", name_,
             at_ - 1, static_cast<int>(op));
    }
  }

  // Each of these four does what the opcode says, or returns false: it is none of theirs.
  bool scalar(Op op) {
    switch (op) {
      case kNone:
        return push_once(none_, PickleNone{});
      case kTrue:
        return push_once(true_, true);
      case kFalse:
        return push_once(false_, false);
      case kBinInt:
        return push(int64_t{take<int32_t>()});
      case kBinInt1:
        return push(int64_t{take<uint8_t>()});
      case kBinInt2:
        return push(int64_t{take<uint16_t>()});
      case kLong1:
        return push_long(take<uint8_t>());
      case kLong4:
        return push_long(take<uint32_t>());
      case kBinFloat:
        return push(std::bit_cast<double>(__builtin_bswap64(take<uint64_t>())));
      case kShortBinString:
      case kShortBinUnicode:
        return push(take_text(take<uint8_t>()));
      case kBinString:
      case kBinUnicode:
        return push(take_text(take<uint32_t>()));
      case kBinUnicode8:
        return push(take_text(take<uint64_t>()));
      case kShortBinBytes:
        return push(PickleBytes{take_text(take<uint8_t>())});
      case kBinBytes:
        return push(PickleBytes{take_text(take<uint32_t>())});
      case kBinBytes8:
      case kByteArray8:
        return push(PickleBytes{take_text(take<uint64_t>())});
      default:
        return false;
    }
  }

  bool container(Op op) {
    switch (op) {
      case kEmptyTuple:
        return push_once(empty_tuple_, PickleSequence{Kind::kTuple, {}});
      case kTuple1:
        return push_sequence(Kind::kTuple, pop_last(1));
      case kTuple2:
        return push_sequence(Kind::kTuple, pop_last(2));
      case kTuple3:
        return push_sequence(Kind::kTuple, pop_last(3));
      case kTuple:
        return push_sequence(Kind::kTuple, pop_to_mark());
      case kEmptyList:
        return push_sequence(Kind::kList, {});
      case kList:
        return push_sequence(Kind::kList, pop_to_mark());
      case kEmptySet:
        return push_sequence(Kind::kSet, {});
      case kFrozenSet:
        return push_sequence(Kind::kSet, pop_to_mark());
      case kEmptyDict:
        return push(PickleDict{});
      case kDict: {
        const Values values = pop_to_mark();
        push(PickleDict{});
        return set_items(values);
      }
      case kAppend:
        return append(pop_last(1));
      case kAppends:
      case kAddItems:
        return append(pop_to_mark());
      case kSetItem:
        return set_items(pop_last(2));
      case kSetItems:
        return set_items(pop_to_mark());
      default:
        return false;
    }
  }

  bool memo(Op op) {
    switch (op) {
      case kBinGet:
        push_again(recall(take<uint8_t>()));
        return true;
      case kLongBinGet:
        push_again(recall(take<uint32_t>()));
        return true;
      case kBinPut:
        memo_[take<uint8_t>()] = top();
        return true;
      case kLongBinPut:
        memo_[take<uint32_t>()] = top();
        return true;
      case kMemoize:
        memo_[static_cast<uint32_t>(memo_.size())] = top();
        return true;
      default:
        return false;
    }
  }

  bool object(Op op) {
    switch (op) {
      case kGlobal: {
        const std::string_view module = take_line();
        return push_global({module, take_line()});
      }
      case kStackGlobal: {
        const Values names = pop_last(2);
        const auto module = pickle_text(names[0]), name = pickle_text(names[1]);
        require(module && name, "{}: byte {}: the name of a class is not text", name_, at_);
        return push_global({*module, *name});
      }
      case kBinPersistentId:
        return push(PickleReference{pop()});
      case kReduce:
      case kNewObject: {
        const Values call = pop_last(2);
        return push_call(call[0], call[1]);
      }
      case kNewObjectEx: {
        const Values call = pop_last(3);  // class, arguments, named arguments
        return push_call(call[0], call[1]);
      }
      case kBuild: {
        PickleNode* state = pop();
        // A dict's or list's own attributes (OrderedDict._metadata) carry nothing that is read here.
        if (auto* record = std::get_if<PickleRecord>(&top()->value)) record->state = state;
        return true;
      }
      default:
        return false;
    }
  }

  template <class T>
  T take() {
    T value;
    const std::string_view raw = take_text(sizeof value);
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  std::string_view take_text(uint64_t size) {
    require(size <= bytes_.size() - at_, "{}: byte {}: the pickle asks for {} bytes, but {} are left{}", name_, at_,
            size, bytes_.size() - at_,
            bytes_.size() == Pickle::kMaxBytes ? " within the limit of 64 MiB" : ". Was the copy interrupted?");
    const auto* data = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += size;
    return {data, size};
  }

  std::string_view take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    require(end < rest.size(), "{}: byte {}: a name in the pickle does not end. Was the copy interrupted?", name_, at_);
    at_ += end + 1;
    return rest.substr(0, end);
  }

  template <class T>
  bool push(T value) {
    require(pickle_.nodes_.size() < most_nodes_, "{}: the pickle of {} bytes holds more than {} values", name_,
            bytes_.size(), most_nodes_);
    push_again(&pickle_.nodes_.emplace_back(PickleNode{std::move(value)}));
    return true;
  }

  // Values of one byte that nothing can change are all the same one.
  template <class T>
  bool push_once(PickleNode*& known, T value) {
    if (known) {
      push_again(known);
    } else {
      push(std::move(value));
      known = stack_.back();
    }
    return true;
  }

  void push_again(PickleNode* node) {
    require(stack_.size() < Pickle::kMaxNodes, "{}: the pickle's stack is deeper than {}", name_, Pickle::kMaxNodes);
    stack_.push_back(node);
  }

  bool push_sequence(Kind kind, const Values& values) {
    return push(PickleSequence{kind, std::vector<PickleValue>(values.begin(), values.end())});
  }

  bool push_long(uint64_t size) {
    const std::string_view raw = take_text(size);
    if (size > 8) return push(PickleLong{raw});
    const bool negative = size > 0 && (raw.back() & 0x80);
    int64_t value = negative ? -1 : 0;  // the sign fills the bytes that are not there
    std::memcpy(&value, raw.data(), size);
    return push(value);
  }

  bool push_global(PickleGlobal global) {
    require(!is_hostile(global),
            "{}: byte {}: the pickle names {}.{}, which no checkpoint needs. It was not called; do not trust "
            "this file.",
            name_, at_, shown(global.module), shown(global.name));
    return push(global);
  }

  bool push_call(PickleNode* callable, PickleNode* arguments) {
    const auto* global = callable->get<PickleGlobal>();
    const auto* tuple = arguments->get<PickleSequence>();
    require(global && tuple && tuple->kind == Kind::kTuple,
            "{}: byte {}: the pickle calls something that is not a named class with a list of arguments", name_, at_);
    if (is_global(*global, "collections", "OrderedDict")) return push_ordered_dict(*tuple);
    if (is_global(*global, "collections", "defaultdict")) return push(PickleDict{});
    if (is_builtin(*global, "set") || is_builtin(*global, "frozenset")) {
      const auto* list = tuple->elements.size() == 1 ? tuple->elements[0]->get<PickleSequence>() : nullptr;
      if (list) count_copies(list->elements.size());
      return push(PickleSequence{Kind::kSet, list ? list->elements : std::vector<PickleValue>{}});
    }
    return push(PickleRecord{*global, arguments, nullptr, {}, {}});
  }

  // One opcode may copy a long list, and come again and again.
  void count_copies(size_t count) {
    copies_ += count;
    require(copies_ <= Pickle::kMaxNodes, "{}: the pickle copies more than {} values", name_, Pickle::kMaxNodes);
  }

  // OrderedDict() or, by Python 2, OrderedDict([[key, value], ...]).
  bool push_ordered_dict(const PickleSequence& arguments) {
    PickleDict dict;
    for (const PickleValue list : arguments.elements) {
      const auto* pairs = list->get<PickleSequence>();
      require(pairs, "{}: byte {}: an OrderedDict is made of something other than pairs", name_, at_);
      count_copies(pairs->elements.size());
      for (const PickleValue element : pairs->elements) {
        const auto* pair = element->get<PickleSequence>();
        require(pair && pair->elements.size() == 2, "{}: byte {}: an OrderedDict is made of something other than pairs",
                name_, at_);
        dict.items.emplace_back(pair->elements[0], pair->elements[1]);
      }
    }
    return push(std::move(dict));
  }

  bool append(const Values& values) {
    PickleNode* target = top();
    auto* list = std::get_if<PickleSequence>(&target->value);
    auto* record = std::get_if<PickleRecord>(&target->value);
    require((list && list->kind != Kind::kTuple) || record, "{}: byte {}: the pickle appends to what is not a list",
            name_, at_);
    auto& elements = list ? list->elements : record->elements;
    elements.insert(elements.end(), values.begin(), values.end());
    return true;
  }

  bool set_items(const Values& values) {
    PickleNode* target = top();
    auto* dict = std::get_if<PickleDict>(&target->value);
    auto* record = std::get_if<PickleRecord>(&target->value);
    require((dict || record) && values.size() % 2 == 0,
            "{}: byte {}: the pickle sets {} keys and values of what is not a dict", name_, at_, values.size());
    PickleItems& items = dict ? dict->items : record->items;
    for (size_t i = 0; i < values.size(); i += 2) items.emplace_back(values[i], values[i + 1]);
    return true;
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleNode* top() {
    require(stack_.size() > floor(), "{}: byte {}: the pickle uses a value that is not there", name_, at_);
    return stack_.back();
  }

  PickleNode* pop() {
    PickleNode* node = top();
    stack_.pop_back();
    return node;
  }

  Values pop_last(size_t count) {
    require(stack_.size() >= floor() + count, "{}: byte {}: the pickle uses {} values, but only {} are there", name_,
            at_, count, stack_.size() - floor());
    const Values values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  Values pop_to_mark() {
    require(!marks_.empty(), "{}: byte {}: the pickle goes back to a mark that is not there", name_, at_);
    const Values values(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }

  PickleNode* recall(uint32_t index) {
    const auto found = memo_.find(index);
    require(found != memo_.end(), "{}: byte {}: the pickle recalls value {}, which it never kept", name_, at_, index);
    return found->second;
  }

  template <class Visit>
  static void for_each_part(const PickleNode& node, Visit visit) {
    const auto visit_items = [&](const PickleItems& items) {
      for (const auto& [key, value] : items) visit(key), visit(value);
    };
    if (const auto* sequence = node.get<PickleSequence>()) {
      for (const PickleValue v : sequence->elements) visit(v);
    } else if (const auto* dict = node.get<PickleDict>()) {
      visit_items(dict->items);
    } else if (const auto* reference = node.get<PickleReference>()) {
      visit(reference->id);
    } else if (const auto* record = node.get<PickleRecord>()) {
      visit(record->arguments);
      if (record->state) visit(record->state);
      for (const PickleValue v : record->elements) visit(v);
      visit_items(record->items);
    }
  }

  // Refuses cycles and endless nesting, so that those who walk the tree may recurse. Depth first, without recursion: a
  // node is entered (its parts wait above it), then left with depth = 1 + that of its deepest part.
  void check_depth() const {
    constexpr int kOpen = -1;
    std::unordered_map<PickleValue, int> depths;  // absent: not seen
    std::vector<std::pair<PickleValue, bool>> waiting;
    for (const PickleNode& node : pickle_.nodes_) {
      waiting.emplace_back(&node, false);
      while (!waiting.empty()) {
        const auto [value, leaving] = waiting.back();
        if (leaving) {
          int depth = 0;
          for_each_part(*value, [&](PickleValue part) { depth = std::max(depth, depths[part]); });
          require(depth < Pickle::kMaxDepth, "{}: the pickle nests deeper than {} levels", name_, Pickle::kMaxDepth);
          depths[value] = depth + 1;
          waiting.pop_back();
          continue;
        }
        const auto [known, fresh] = depths.emplace(value, kOpen);
        if (!fresh) {
          waiting.pop_back();
          continue;
        }
        waiting.back().second = true;
        for_each_part(*value, [&](PickleValue part) {
          const auto seen = depths.find(part);
          require(seen == depths.end() || seen->second != kOpen,
                  "{}: a value in the pickle contains itself. No checkpoint does that.", name_);
          if (seen == depths.end()) waiting.emplace_back(part, false);
        });
      }
    }
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  size_t most_nodes_;
  const std::string& name_;
  size_t at_ = 0;
  size_t copies_ = 0;
  Values stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, PickleNode*> memo_;  // not hashed: the file chooses the keys
  PickleNode *none_ = nullptr, *true_ = nullptr, *false_ = nullptr, *empty_tuple_ = nullptr;
};

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& name) { PickleMachine(*this, bytes, name).run(); }

}  // namespace longshot
