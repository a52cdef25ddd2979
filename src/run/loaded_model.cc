#include "run/loaded_model.h"

namespace longshot {

LoadedModel load_model(const fs::path& path) {
  LoadedModel loaded;
  loaded.dir = find_checkpoint(path);
  loaded.info = read_checkpoint(loaded.dir);
  loaded.model = std::make_unique<Transformer>(loaded.info.model, false);
  load_weights(loaded.dir, *loaded.model);
  if (!loaded.info.tokenizer_file.empty()) loaded.tokenizer = load_tokenizer(loaded.dir / loaded.info.tokenizer_file);
  return loaded;
}

}  // namespace longshot
