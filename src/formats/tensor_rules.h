// How the tensors of other programs become ours, and ours theirs: one table per family of models, read in both directions.
//
// Beside a transposition every difference is one of rows. Rows of theirs, seen as [outer, a, b, run], are ours as
// [outer, b, a, run]:
//
//   kSame            the same rows
//   kQkvByHead       [1, H, 3, D]      query, key and value of a head together; ours: all queries, all keys, all values
//   kRotaryPairs     [H, D/2, 2, 1]    the two of a rotated pair side by side; ours: first halves, second halves (GGUF)
//   kTransposed      columns are rows  (GPT-2's Conv1D)
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/source_tensors.h"
#include "model/config.h"

namespace longshot {

enum class Arrangement { kSame, kQkvByHead, kRotaryPairs, kTransposed };

struct TheirTensor {
  std::string name;  // "{}" stands for the number of the layer
  Arrangement arrangement = Arrangement::kSame;
  int64_t rows = 0;  // of ours that it gives; 0: all
};

struct TensorRule {
  std::string ours;                 // "{}" as above
  std::vector<TheirTensor> theirs;  // one below the other
};

struct TensorRules {
  std::vector<TensorRule> rules;
  std::string optional_prefix{};       // their files may lack it in front of names
  std::vector<std::string> skipped{};  // endings of names of what is no weight: masks, frequencies
  struct Copy {
    std::string copy, of;
    bool written = false;  // their programs need it
  };
  std::vector<Copy> copies{};  // stored twice by some: must be equal where both are there
  struct OtherName {
    std::string other, name;
  };
  std::vector<OtherName> other_names{};  // that some files have instead
};

// Rules for `part` ("attention_norm" and the like), its weight and, where the model has it, its bias.
void add_linear(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
                const std::string& theirs, Arrangement arrangement = Arrangement::kSame);
void add_norm(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
              const std::string& theirs);
// SwiGLU's first layer, without a bias: our gate stands above our factor.
struct GatedNames {
  std::string gate, factor;
};
void add_gated(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
               const GatedNames& theirs);

// A tensor that is made while it is written: from rows of stored ones.
struct MadeTensor {
  struct Piece {
    const SourceTensor* from;
    int64_t first, rows;  // of `from`; after a transposition where it is transposed
    int64_t outer, a, b, run;
    bool transposed = false;
  };
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<Piece> pieces;
  std::string origin{};  // what messages call the file or directory

  // Gives its bytes to `sink`, in order. A number that is not finite, or not in the type, is refused with the tensor's name.
  void give(const ByteSink& sink) const;
};

std::vector<StreamedTensor> streamed(std::span<const MadeTensor> tensors);  // which must outlive them

// Every tensor of the model, in its order, from theirs. A missing tensor, one of another shape, one that has no place and a
// copy that differs are refused by name. `type`: of all; none: as they are stored (float64 becomes float32).
std::vector<MadeTensor> make_ours(const SourceTensors& theirs, const TensorRules& rules, const ModelConfig& config,
                                  std::optional<DType> type = {});
// Every tensor of theirs from ours.
std::vector<MadeTensor> make_theirs(const SourceTensors& ours, const TensorRules& rules, const ModelConfig& config,
                                    std::optional<DType> type = {});

}  // namespace longshot
