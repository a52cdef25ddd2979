#include "cli/info_hf.h"

#include "base/printable.h"
#include "cli/command.h"
#include "cli/info_foreign.h"
#include "formats/hf_directory.h"

namespace longshot {

bool print_hf_info(const fs::path& path, bool json) {
  if (!is_hf_directory(path)) return false;
  const HfModel model = read_hf_model(path);
  const SourceTensors tensors = open_hf_tensors(path);
  int64_t parameters = 0;
  Json listed = Json::array();
  for (const SourceTensor& t : tensors.all()) {
    parameters += element_count(t.shape).value_or(0);
    listed.push_back({{"name", t.name}, {"dtype", dtype_name(t.dtype)}, {"shape", t.shape}});
  }
  const ForeignModel foreign{model.family->name, parameters, model.json.refusals(), model.config};
  if (json) {
    Json all = foreign_json(foreign);
    all["tensors"] = listed;
    show_json(all, 2);
    return true;
  }
  print_foreign(foreign);
  for (const SourceTensor& t : tensors.all())
    fmt::print("{:<5} {:<16} {}\n", dtype_name(t.dtype), shape_text(t.shape), printable(t.name));
  return true;
}

}  // namespace longshot
