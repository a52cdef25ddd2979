#include "run/loaded_model.h"

#include "base/error.h"
#include "data/tokenizers.h"

namespace longshot {

const Tokenizer& LoadedModel::required_tokenizer() const {
  require(tokenizer != nullptr, "{}: no tokenizer travelled with this model", dir.string());
  return *tokenizer;
}

LoadedModel load_model(const fs::path& path, const Watch& watch, std::optional<WeightStorage> storage) {
  LoadedModel loaded;
  loaded.dir = find_checkpoint(path);
  loaded.info = read_checkpoint(loaded.dir, watch.part(0, 0.5));
  loaded.model = std::make_unique<Transformer>(loaded.info.model, false,
                                               storage ? Transformer::Memory::kReserved : Transformer::Memory::kMemory);
  load_weights(loaded.dir, *loaded.model, watch.part(0.5, 1), storage);
  if (!loaded.info.tokenizer_file.empty()) {
    loaded.tokenizer = padded_tokenizer(load_tokenizer(loaded.dir / loaded.info.tokenizer_file),
                                        static_cast<int>(loaded.info.model.vocab));
  }
  watch.at(1);
  return loaded;
}

}  // namespace longshot
