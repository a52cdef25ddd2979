// What the SentencePiece library takes on trust in a model file is checked here, before it gets it.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

// Throws if a piece is too long for the library's recursion, or a table of normalisation leads out of itself.
void check_sentencepiece_model(std::string_view model, const std::string& origin);

}  // namespace longshot
