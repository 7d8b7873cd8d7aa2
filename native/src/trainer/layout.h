// Where every parameter lives: logical tensors inside units, units cut into shards (see MEMORY.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace internevo::trainer {

enum class TensorKind { matrix, gain };

/// A logical tensor of the model: elements [offset, offset + elements()) of its unit, row-major.
struct LogicalTensor {
  std::string name;
  TensorKind kind = TensorKind::matrix;
  std::int64_t rows = 1, columns = 0;   ///< [outputs, inputs]; gains are [1, width]
  std::int64_t offset = 0;
  double initStandardDeviation = 0;     ///< of a matrix; gains begin as 1

  std::int64_t elements() const { return rows * columns; }
};

/// The smallest thing that is gathered, reduced and updated: one flat block, padded.
struct Unit {
  std::string name;
  std::vector<LogicalTensor> tensors;
  std::int64_t elements = 0;        ///< before padding
  std::int64_t paddedElements = 0;  ///< multiple of 64·ps·oss
};

/// Offsets (elements) inside the unit of a layer; wk follows wq, wv follows wk, up follows gate, so that the three
/// projections [H + 2·W, H] and the two [2·F, H] are one matrix each.
struct LayerOffsets {
  std::int64_t attentionNorm, queryKeyValue, attentionOutput, mlpNorm, gateUp, down;
};

class Layout {
 public:
  Layout(const ModelConfig& model, const PlanConfig& plan);

  const std::vector<Unit>& units() const { return units_; }
  const Unit& unit(int index) const { return units_[static_cast<std::size_t>(index)]; }
  int unitCount() const { return static_cast<int>(units_.size()); }

  int embeddingUnit() const { return 0; }
  int layerUnit(std::int64_t layer) const { return static_cast<int>(1 + layer); }
  /// The unit with head weights and the final norm's gain; with tied embeddings the embedding's own.
  int headUnit() const { return headUnit_; }
  std::int64_t finalNormOffset() const { return finalNormOffset_; }
  const LayerOffsets& layerOffsets() const { return layerOffsets_; }

  /// Sum and largest of paddedElements.
  std::int64_t totalElements() const { return total_; }
  std::int64_t largestElements() const { return largest_; }
  /// Parameters of the model, without padding.
  std::int64_t parameters() const { return parameters_; }

  std::int64_t parameterShard(int unitIndex) const { return unit(unitIndex).paddedElements / parameterShards_; }
  std::int64_t optimizerShard(int unitIndex) const { return parameterShard(unitIndex) / optimizerShards_; }
  /// Sum over the units before this one, in padded elements.
  std::int64_t unitStart(int unitIndex) const { return starts_[static_cast<std::size_t>(unitIndex)]; }

 private:
  void append(Unit unit);

  std::vector<Unit> units_;
  std::vector<std::int64_t> starts_;
  LayerOffsets layerOffsets_{};
  std::int64_t total_ = 0, largest_ = 0, parameters_ = 0, finalNormOffset_ = 0;
  std::int64_t parameterShards_, optimizerShards_;
  int headUnit_ = 0;
};

}  // namespace internevo::trainer
