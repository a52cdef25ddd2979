// The tensors of GGUF files as sources of ours, and made ones on their way into such a file.
#pragma once
#include <memory>
#include <optional>

#include "formats/gguf.h"
#include "formats/tensor_rules.h"

namespace longshot {

// Every tensor of a readable type; blocks are unpacked to F32 when rows are read. It keeps the file open.
SourceTensors open_gguf_tensors(const std::shared_ptr<const Gguf>& file);

// The types that llama.cpp wants: vectors and tables of positions are F32, matrices `type` or as they are made; the tensors
// are made so from then on. Rows that are no whole blocks of a type are refused by name.
std::vector<GgufOutput> gguf_outputs(std::vector<MadeTensor>& tensors, std::optional<GgmlType> type);
// Writes and syncs. The file is written in place: publish() it.
void write_gguf_tensors(const fs::path& path, const GgufKeys& keys, std::span<const MadeTensor> tensors,
                        std::span<const GgufOutput> outputs, const Watch& watch);

}  // namespace longshot
