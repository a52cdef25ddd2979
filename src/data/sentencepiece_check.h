// What the SentencePiece library takes on trust in a model file is checked here, before it gets it.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

// The model without its samples, whose failure the library prints as it stands in the file. Throws if a piece is too long for
// the library's recursion or ends its tries early, if symbols or rules are more than it has room for, or a table of
// normalisation leads out of itself or makes a text many times as long.
std::string checked_sentencepiece_model(std::string_view model, const std::string& origin);

}  // namespace longshot
