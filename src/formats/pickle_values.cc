// Ways to look at values of a pickle that has been read.
#include "formats/pickle.h"

namespace longshot {

const PickleItems* pickle_fields(PickleValue value) {
  if (const auto* record = value->get<PickleRecord>()) {
    if (!record->state) return nullptr;
    value = record->state;
  }
  const auto* dict = value->get<PickleDict>();
  return dict ? &dict->items : nullptr;
}

PickleValue find_field(const PickleItems& items, std::string_view key) {
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    if (pickle_text(item->first) == key) return item->second;
  }
  return nullptr;
}

std::optional<std::string_view> pickle_text(PickleValue value) {
  const auto* text = value->get<std::string_view>();
  return text ? std::optional(*text) : std::nullopt;
}

std::optional<int64_t> pickle_int(PickleValue value) {
  const auto* number = value->get<int64_t>();
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<double> pickle_number(PickleValue value) {
  if (const auto* number = value->get<int64_t>()) return static_cast<double>(*number);
  const auto* number = value->get<double>();
  return number ? std::optional(*number) : std::nullopt;
}

bool is_global(const PickleGlobal& global, std::string_view module, std::string_view name) {
  return global.module == module && global.name == name;
}

}  // namespace longshot
