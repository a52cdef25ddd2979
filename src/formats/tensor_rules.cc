#include "formats/tensor_rules.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "model/transformer.h"

namespace longshot {
namespace {

using Piece = MadeTensor::Piece;

constexpr size_t kBuffer = size_t{256} << 10;  // bytes that stay in the cache from their reading to their writing

std::string with_layer(const std::string& name, int64_t layer) {
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : std::string(name).replace(at, 2, std::to_string(layer));
}

// A rule for every layer where its names ask for one.
std::vector<TensorRule> expanded(const TensorRules& rules, int64_t layers) {
  std::vector<TensorRule> all;
  for (const TensorRule& rule : rules.rules) {
    const int64_t count = rule.ours.find("{}") == std::string::npos ? 1 : layers;
    for (int64_t i = 0; i < count; ++i) {
      TensorRule& made = all.emplace_back(rule);
      made.ours = with_layer(rule.ours, i);
      for (TheirTensor& t : made.theirs) t.name = with_layer(t.name, i);
    }
  }
  return all;
}

// Rows of theirs as [outer, a, b, run]; `rows` and head_dim fit, as the shapes of the model do.
Piece arranged(const TheirTensor& tensor, int64_t rows, int64_t head_dim) {
  Piece piece{.from = nullptr, .first = 0, .rows = rows, .outer = 1, .a = 1, .b = 1, .run = rows};
  switch (tensor.arrangement) {
    case Arrangement::kSame:
      return piece;
    case Arrangement::kTransposed:
      piece.transposed = true;
      return piece;
    case Arrangement::kQkvByHead:
      require(rows % (3 * head_dim) == 0, "'{}': {} rows are not 3 times heads of {}: keys and values have fewer heads",
              tensor.name, rows, head_dim);
      piece.a = rows / (3 * head_dim), piece.b = 3, piece.run = head_dim;
      return piece;
    case Arrangement::kRotaryPairs:
      require(rows % head_dim == 0 && head_dim % 2 == 0, "'{}': {} rows are not heads of {} in pairs", tensor.name,
              rows, head_dim);
      piece.outer = rows / head_dim, piece.a = head_dim / 2, piece.b = 2, piece.run = 1;
      return piece;
  }
  return piece;
}

Shape their_shape(const TheirTensor& tensor, Shape ours, int64_t rows) {
  ours[0] = rows;
  if (tensor.arrangement == Arrangement::kTransposed) std::swap(ours.at(0), ours.at(1));
  return ours;
}

const SourceTensor* find(const SourceTensors& tensors, const TensorRules& rules, const std::string& name) {
  const SourceTensor* found = tensors.find(name);
  if (!found && !rules.optional_prefix.empty() && name.starts_with(rules.optional_prefix))
    found = tensors.find(std::string_view(name).substr(rules.optional_prefix.size()));
  for (const TensorRules::OtherName& o : rules.other_names) {
    if (!found && o.name == name) found = tensors.find(o.other);
  }
  return found;
}

const SourceTensor& wanted(const SourceTensors& tensors, const SourceTensor* tensor, const std::string& name,
                           const Shape& shape) {
  require(tensor, "{}: has no tensor '{}' among its {}. Is a part of the model missing?", tensors.origin(), name,
          tensors.all().size());
  require(tensor->shape == shape, "{}: tensor '{}' has the shape {}, the configuration asks for {}", tensors.origin(),
          name, shape_text(tensor->shape), shape_text(shape));
  require(is_floating(tensor->dtype), "{}: tensor '{}' has elements of type {}, not floating-point", tensors.origin(),
          name, dtype_name(tensor->dtype));
  return *tensor;
}

// What holds every number of all pieces.
DType common_type(const std::vector<Piece>& pieces) {
  const DType first = pieces.front().from->dtype;
  const bool alike = std::ranges::all_of(pieces, [&](const Piece& p) { return p.from->dtype == first; });
  return alike && first != DType::kF64 ? first : DType::kF32;
}

// Rows given by all of a rule's tensors, and how many its only open one has.
int64_t rows_of(const TensorRule& rule, const TheirTensor& tensor, int64_t all) {
  if (tensor.rows > 0) return tensor.rows;
  require(rule.theirs.size() == 1, "'{}': the rows of its parts are not given", rule.ours);
  return all;
}

void require_equal_copy(const SourceTensors& tensors, const TensorRules& rules, const TensorRules::Copy& c) {
  const SourceTensor *copy = find(tensors, rules, c.copy), *of = find(tensors, rules, c.of);
  if (!copy || !of) return;
  const auto differ = [&] {
    fail("{}: the configuration says that '{}' and '{}' are one matrix, but they differ", tensors.origin(), c.copy,
         c.of);
  };
  if (copy->dtype != of->dtype || copy->shape != of->shape) differ();
  const size_t width = std::max<size_t>(copy->row_bytes(), 1);
  const auto step = static_cast<int64_t>(std::max<size_t>(kBuffer / width, 1));
  std::vector<std::byte> x, y;
  for (int64_t at = 0; at < copy->rows(); at += step) {
    const int64_t count = std::min(step, copy->rows() - at);
    x.resize(static_cast<size_t>(count) * width), y.resize(x.size());
    copy->read(at, count, x);
    of->read(at, count, y);
    if (x != y) differ();
  }
}

// What nobody asked for is a model that we do not know.
void require_all_used(const SourceTensors& tensors, const TensorRules& rules, std::set<const SourceTensor*> used) {
  for (const TensorRules::Copy& c : rules.copies) used.insert(find(tensors, rules, c.copy));
  for (const SourceTensor& t : tensors.all()) {
    const bool skipped =
        std::ranges::any_of(rules.skipped, [&](const std::string& ending) { return t.name.ends_with(ending); });
    require(skipped || used.contains(&t), "{}: tensor '{}' of shape {} has no place in the model", tensors.origin(),
            shown(t.name), shape_text(t.shape));
  }
}

// Collects rows of one type, converts, checks and hands on.
class Giver {
 public:
  Giver(const MadeTensor& to, const ByteSink& sink) : to_(to), sink_(sink) {}

  void piece(const Piece& p) {
    from_ = p.from;
    if (p.transposed) return transposed(p);
    for (int64_t o = 0; o < p.outer; ++o) {
      for (int64_t j = 0; j < p.b; ++j) {
        for (int64_t i = 0; i < p.a; ++i) run(p.first + ((o * p.a + i) * p.b + j) * p.run, p.run);
      }
    }
    flush();
  }

 private:
  void run(int64_t first, int64_t count) {
    const size_t width = from_->row_bytes();
    if (width == 0) return;
    while (count > 0) {
      const int64_t part = std::min(count, static_cast<int64_t>(std::max<size_t>(kBuffer / width, 1)));
      const size_t bytes = static_cast<size_t>(part) * width;
      if (held_ + bytes > kBuffer) flush();
      if (in_.size() < held_ + bytes) in_.resize(std::max(kBuffer, held_ + bytes));
      from_->read(first, part, std::span(in_).subspan(held_, bytes));
      held_ += bytes;
      first += part, count -= part;
    }
  }

  // to[c, r] = from[r, c], in blocks that stay in the cache.
  void transposed([[maybe_unused]] const Piece& p) {
    constexpr int64_t kBlock = 32;
    const int64_t rows = from_->rows(), cols = from_->row_elements();
    const size_t width = dtype_size(from_->dtype);
    assert(p.first == 0 && p.rows == cols);
    std::vector<std::byte> all(static_cast<size_t>(rows) * from_->row_bytes()), turned(all.size());
    from_->read(0, rows, all);
    for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
      for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        for (int64_t c = c0; c < std::min(cols, c0 + kBlock); ++c) {
          for (int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
            std::memcpy(&turned[static_cast<size_t>(c * rows + r) * width],
                        &all[static_cast<size_t>(r * cols + c) * width], width);
        }
      }
    }
    for (size_t at = 0; at < turned.size(); at += kBuffer)
      convert(std::span(turned).subspan(at, std::min(kBuffer, turned.size() - at)));
  }

  void flush() {
    if (held_ > 0) convert(std::span(in_).first(held_));
    held_ = 0;
  }

  void convert(std::span<const std::byte> bytes) {
    if (from_->dtype != to_.dtype) {
      const size_t count = bytes.size() / dtype_size(from_->dtype);
      if (floats_.size() < count) floats_.resize(count);
      convert_to_float(from_->dtype, bytes, std::span(floats_).first(count));
      out_.resize(count * dtype_size(to_.dtype));
      convert_from_float(to_.dtype, std::span(floats_).first(count), out_);
      bytes = out_;
    }
    require(all_finite(to_.dtype, bytes), "{}: tensor '{}' holds a number that is not finite{}", to_.origin,
            shown(from_->name),
            from_->dtype == to_.dtype ? "" : fmt::format(", or too large for {}", dtype_name(to_.dtype)));
    sink_(bytes);
  }

  const MadeTensor& to_;
  const ByteSink& sink_;
  const SourceTensor* from_ = nullptr;
  std::vector<std::byte> in_, out_;
  std::vector<float> floats_;
  size_t held_ = 0;
};

}  // namespace

void add_linear(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
                const std::string& theirs, Arrangement arrangement) {
  rules.push_back({ours + ".weight", {{theirs + ".weight", arrangement}}});
  // A bias is a row of numbers: it has nothing to transpose.
  const Arrangement of_bias = arrangement == Arrangement::kTransposed ? Arrangement::kSame : arrangement;
  if (config.bias) rules.push_back({ours + ".bias", {{theirs + ".bias", of_bias}}});
}

void add_norm(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
              const std::string& theirs) {
  rules.push_back({ours + ".weight", {{theirs + ".weight"}}});
  if (config.bias && config.norm == NormKind::kLayerNorm) rules.push_back({ours + ".bias", {{theirs + ".bias"}}});
}

void add_gated(std::vector<TensorRule>& rules, const ModelConfig& config, const std::string& ours,
               const GatedNames& theirs) {
  rules.push_back({ours + ".weight",
                   {{theirs.gate + ".weight", Arrangement::kSame, config.ffn_dim()},
                    {theirs.factor + ".weight", Arrangement::kSame, config.ffn_dim()}}});
}

void MadeTensor::give(const ByteSink& sink) const {
  Giver giver(*this, sink);
  for (const Piece& p : pieces) giver.piece(p);
}

std::vector<StreamedTensor> streamed(std::span<const MadeTensor> tensors) {
  std::vector<StreamedTensor> all;
  for (const MadeTensor& t : tensors)
    all.push_back({t.name, t.dtype, t.shape, [&t](const ByteSink& sink) { t.give(sink); }});
  return all;
}

std::vector<MadeTensor> make_ours(const SourceTensors& theirs, const TensorRules& rules, const ModelConfig& config,
                                  std::optional<DType> type) {
  std::map<std::string, TensorRule> by_name;
  for (TensorRule& rule : expanded(rules, config.layers)) by_name.emplace(rule.ours, std::move(rule));
  const Transformer shapes(config, false, Transformer::Memory::kReserved);
  std::vector<MadeTensor> made;
  std::set<const SourceTensor*> used;
  for (const Tensor& t : shapes.parameters().tensors()) {
    const auto found = by_name.find(t.name);
    require(found != by_name.end(), "{}: nothing in this kind of model becomes our '{}'", theirs.origin(), t.name);
    MadeTensor& tensor = made.emplace_back(MadeTensor{t.name, DType::kF32, t.shape, {}, theirs.origin()});
    int64_t rows_left = t.shape[0];
    for (const TheirTensor& their : found->second.theirs) {
      const int64_t rows = rows_of(found->second, their, t.shape[0]);
      Piece piece = arranged(their, rows, config.head_dim());
      piece.from = &wanted(theirs, find(theirs, rules, their.name), their.name, their_shape(their, t.shape, rows));
      used.insert(piece.from);
      tensor.pieces.push_back(piece);
      rows_left -= rows;
    }
    require(rows_left == 0, "'{}': the rules leave {} of {} rows open", t.name, rows_left, t.shape[0]);
    tensor.dtype = type.value_or(common_type(tensor.pieces));
  }
  require_all_used(theirs, rules, std::move(used));
  for (const TensorRules::Copy& c : rules.copies) require_equal_copy(theirs, rules, c);
  return made;
}

std::vector<MadeTensor> make_theirs(const SourceTensors& ours, const TensorRules& rules, const ModelConfig& config,
                                    std::optional<DType> type) {
  const Transformer shapes(config, false, Transformer::Memory::kReserved);
  std::map<std::string, Shape> shape_of;
  for (const Tensor& t : shapes.parameters().tensors()) shape_of.emplace(t.name, t.shape);
  std::vector<MadeTensor> made;
  for (const TensorRule& rule : expanded(rules, config.layers)) {
    const auto shape = shape_of.find(rule.ours);
    require(shape != shape_of.end(), "the model has no '{}', which this kind of file needs", rule.ours);
    const SourceTensor& from = wanted(ours, ours.find(rule.ours), rule.ours, shape->second);
    int64_t first = 0;
    for (const TheirTensor& their : rule.theirs) {
      const int64_t rows = rows_of(rule, their, shape->second[0]);
      Piece piece = arranged(their, rows, config.head_dim());
      std::swap(piece.a, piece.b);
      piece.from = &from, piece.first = first;
      if (piece.transposed) piece.rows = shape->second[1];
      made.push_back({their.name,
                      type.value_or(common_type({piece})),
                      their_shape(their, shape->second, rows),
                      {piece},
                      ours.origin()});
      first += rows;
    }
    shape_of.erase(shape);
  }
  for (const TensorRules::Copy& c : rules.copies) {
    if (!c.written) continue;
    MadeTensor copy = *std::ranges::find(made, c.of, &MadeTensor::name);
    copy.name = c.copy;
    made.push_back(std::move(copy));
  }
  require(shape_of.empty(), "the model's '{}' has no place in this kind of file",
          shape_of.empty() ? "" : shape_of.begin()->first);
  return made;
}

}  // namespace longshot
