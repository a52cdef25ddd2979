// Tokens become text as they are made: no character is cut in two, and no part of a stop string is shown.
#pragma once
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace longshot {

// The text that each token adds to those before it.
class TokenText {
 public:
  // `before` are the tokens in front, which decide whether a space follows.
  explicit TokenText(const Tokenizer& tokenizer, std::span<const int32_t> before = {});
  std::string push(int32_t id);

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> recent_;  // tokens whose text is decoded together
  size_t bytes_ = 0;             // of their text
};

class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before, std::vector<std::string> stops);

  // What may be shown now that `id` was made; "" while a character or perhaps a stop string is unfinished.
  std::string push(int32_t id);
  // What was held back, once no token follows.
  std::string finish();
  // A stop string came: it and what follows are left out.
  bool stopped() const { return stopped_; }

 private:
  std::string release(bool last);

  TokenText tokens_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// Bytes at the end of `text` that begin a character whose other bytes have not come; 0 to 3.
size_t unfinished_utf8(std::string_view text);

}  // namespace longshot
