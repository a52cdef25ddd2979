// What chunks of text become: ids, where documents begin, and what was counted on the way.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longshot {

struct Encoded {
  struct Part {
    std::vector<int32_t> ids;
    std::vector<uint64_t> starts;  // of documents, in ids
    uint64_t bytes = 0, words = 0;
  };
  std::vector<Part> parts;  // for each split
  uint64_t invalid_bytes = 0;
  std::string first_invalid;

  void clear(size_t splits);
};

// As bytes, for another rank of the same program.
std::string packed(std::span<const Encoded> chunks);
std::vector<Encoded> unpacked(std::string_view bytes);

}  // namespace longshot
