// What `prepare` reads: files, standard input and pipes, a recipe's archive or a data-bin; into which splits it goes;
// and, where the inputs are cut, which document goes where.
#pragma once
#include <optional>

#include "base/watch.h"
#include "data/documents.h"
#include "data/prepare.h"
#include "data/token_set.h"

namespace longshot {

class PrepareSources {
 public:
  // Lists the inputs. `leave_out` are directories of which no file is taken.
  PrepareSources(const PrepareConfig& config, const std::vector<fs::path>& leave_out, const PrepareHooks& hooks);

  const std::vector<std::string>& splits() const { return splits_; }  // names
  const std::vector<DocumentInput>& inputs() const { return inputs_; }
  const DocumentConfig& documents() const { return documents_; }
  const std::string& tokenizer() const { return tokenizer_; }
  uint64_t total_bytes() const;
  bool wanted(size_t split) const;  // some text should go there

  bool has_pipes() const;
  // Keeps in `dir` what is not a file: it is read more than once. Returns the files.
  std::vector<fs::path> spool_pipes(const fs::path& dir);
  // Says where what is cut by --split is cut. Reads files, to count documents or bytes.
  void plan_cuts();

  size_t split_of(const Segment& segment) const;
  // What to do when a split that is wanted got no text.
  std::string advice() const;

 private:
  bool cut() const { return !config_.inputs.empty() && !data_bin_; }
  void list_files(const std::vector<fs::path>& leave_out);
  void list_data_bin(const fs::path& dir);
  void list_recipe();
  void check() const;
  std::vector<uint64_t> first_documents(size_t most) const;
  void cut_by_number(const std::vector<uint64_t>& numbers);
  void cut_by_bytes();

  const PrepareConfig& config_;
  const PrepareHooks& hooks_;
  DocumentConfig documents_;
  std::optional<TokenSet> data_bin_;
  std::string tokenizer_;
  std::vector<std::string> splits_{"train", "valid", "test"};
  std::vector<DocumentInput> inputs_;
  std::vector<uint64_t> number_cuts_;  // first documents of the second and the third split; empty: drawn by seed
};

}  // namespace longshot
