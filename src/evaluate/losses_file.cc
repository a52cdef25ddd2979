#include "base/error.h"
#include "base/lock.h"
#include "evaluate/evaluation.h"
#include "formats/safetensors.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

std::string column_name(const Evaluation& e) {
  return e.mode == WindowMode::kSliding ? fmt::format("sliding_{}_stride_{}", e.windows.window, e.windows.stride)
                                        : fmt::format("nonoverlapping_{}", e.windows.window);
}

// Tokens of the longest column; sliding windows may score fewer.
size_t rows_of(const std::vector<EvaluatedLosses>& columns) {
  size_t rows = columns.front().losses.size();
  for (const EvaluatedLosses& c : columns) rows = std::max(rows, c.losses.size());
  return rows;
}

std::vector<int32_t> ids_of(const TokenFile& stream, size_t rows) {
  std::vector<int32_t> ids(rows);
  stream.read(0, ids);
  return ids;
}

void write_csv(const fs::path& path, const std::vector<int32_t>& ids, const std::vector<EvaluatedLosses>& columns,
               const Watch& watch) {
  OutputFile file(path);
  std::string text = "place,id";
  for (const EvaluatedLosses& c : columns) text += "," + column_name(c.evaluation);
  for (size_t r = 0; r < ids.size(); ++r) {
    text += fmt::format("\n{},{}", r, ids[r]);
    for (const EvaluatedLosses& c : columns) text += r < c.losses.size() ? fmt::format(",{}", c.losses[r]) : ",";
    if (text.size() <= 1 << 16) continue;
    file.write(std::exchange(text, ""));
    watch.at(static_cast<double>(r) / static_cast<double>(ids.size()));
  }
  file.write(text + "\n");
  file.close();
}

// place [n] int64, id [n] int32, and a tensor [tokens] of losses per evaluation.
void write_tensors(const fs::path& path, const std::vector<int32_t>& ids, const std::vector<EvaluatedLosses>& columns) {
  std::vector<int64_t> places(ids.size());
  for (size_t r = 0; r < places.size(); ++r) places[r] = static_cast<int64_t>(r);
  const auto rows = static_cast<int64_t>(ids.size());
  std::vector<NamedTensor> tensors{{"place", DType::kI64, {rows}, std::as_bytes(std::span(places))},
                                   {"id", DType::kI32, {rows}, std::as_bytes(std::span(ids))}};
  for (const EvaluatedLosses& c : columns) {
    tensors.push_back({column_name(c.evaluation),
                       DType::kF32,
                       {static_cast<int64_t>(c.losses.size())},
                       std::as_bytes(std::span(c.losses))});
  }
  write_safetensors(path, tensors);
}

}  // namespace

void write_losses(const fs::path& path, const TokenFile& stream, const std::vector<EvaluatedLosses>& losses,
                  const Watch& watch) {
  require(!losses.empty(), "{}: no length could be tested, there are no losses to write", path.string());
  const bool csv = path.extension() == ".csv";
  require_usage(csv || path.extension() == ".safetensors", "{}: losses are written as .csv or .safetensors",
                path.string());
  const std::vector<int32_t> ids = ids_of(stream, rows_of(losses));
  const DirectoryLock lock = DirectoryLock::beside(fs::absolute(path));
  fs::path aside = path;
  aside += kUnfinished;
  watch.at(0);
  try {
    csv ? write_csv(aside, ids, losses, watch) : write_tensors(aside, ids, losses);
    watch.at(1);
    publish(aside, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(aside, ignored);
    throw;
  }
}

}  // namespace longshot
