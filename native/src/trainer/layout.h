// Where every parameter lives: which slice of each logical tensor a rank holds, inside units, cut into shards
// (see MEMORY.md).
//
// A rank's position (pipeline stage, tensor index) decides which slices of which logical tensors it holds; the
// R = dp·sp/tp ranks of one position hold the same units and cut each into ps·oss shards. A logical element has one
// name under every plan: (tensor name, global row, global column). Its initial weight depends on that name only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layer_program/layer_program.h"
#include "trainer/config.h"

namespace internevo::trainer {

/// A rank's place among those that hold different slices of the model.
struct Position {
  int stage = 0;        ///< index in its pipeline group
  int tensorIndex = 0;  ///< index in its tensor group

  bool operator==(const Position&) const = default;
};

/// The position of a rank in the mesh. Errors: Failure internal for a rank that the mesh does not have.
Position positionOf(const MeshConfig& mesh, int rank);

/// Layers [first, last) of one virtual stage.
struct LayerRange {
  std::int64_t first = 0, last = 0;

  std::int64_t count() const { return last - first; }
};

/// Layers of virtual stage `index` of `stages`: dealt as evenly as they go, the first (layers mod stages) have one more.
LayerRange layersOf(std::int64_t layers, std::int64_t stages, std::int64_t index);

/// The slice of a logical tensor that a rank holds: rows [firstRow, firstRow + rows) and columns
/// [firstColumn, firstColumn + columns) of a matrix [globalRows, globalColumns], kept row-major and dense as elements
/// [offset, offset + elements()) of its unit. Between the end of one slice and the offset of the next, and between the
/// last and the unit's end, there may be padding (zero, never updated).
///
/// How the tensor ranks i of tp cut a dimension of a tensor, as its program says:
///   whole       the whole dimension on every rank
///   equal       [i·N/tp, …): whole heads of wq's rows and wo's columns
///   shared      K ≥ tp: [i·K/tp·D, …); K < tp: the D elements of head ⌊i·K/tp⌋, the same on tp/K neighbours
///   roundedUp   [i·⌈N/tp⌉, min(N, (i + 1)·⌈N/tp⌉)); the room of the last is ⌈N/tp⌉ too
/// With tied embeddings and more than one stage, the first and the last stage hold the whole embedding unit.
struct LogicalTensor {
  std::string name;
  TensorKind kind = TensorKind::matrix;
  std::int64_t rows = 1, columns = 0;  ///< held here: [outputs, inputs]; gains and biases are [1, width]
  std::int64_t offset = 0;             ///< first element inside the unit
  double initStandardDeviation = 0;    ///< of a matrix; gains begin as 1, biases as 0

  std::int64_t globalRows = 1, globalColumns = 0;
  std::int64_t firstRow = 0, firstColumn = 0;
  int tensorReplicas = 1;  ///< neighbouring tensor ranks that hold this very slice, this one among them
  bool primary = true;  ///< of all positions that hold this slice, this is the one that counts and saves it

  std::int64_t elements() const { return rows * columns; }
  std::int64_t globalElements() const { return globalRows * globalColumns; }
  /// Place of held element `index` (row-major in the slice) in the whole tensor, row-major.
  std::int64_t globalIndex(std::int64_t index) const {
    return (firstRow + index / columns) * globalColumns + firstColumn + index % columns;
  }
};

/// The smallest thing that is gathered, reduced and updated: one flat block, padded.
struct Unit {
  std::string name;
  std::vector<LogicalTensor> tensors;
  std::int64_t elements = 0;        ///< before padding
  std::int64_t paddedElements = 0;  ///< multiple of 64·ps·oss
  bool runsAgain =
      false;  ///< a backward pass begins with operators of it, unless the whole layer is recomputed
  bool onBothEnds = false;  ///< tied embeddings: the first and the last stage hold it, and sum its gradient
};

/// Units that stand behind one another.
struct UnitRange {
  int first = 0, count = 0;
};

/// Where a tensor of a layer is: its unit, and its first element in it. Tensors of a unit follow one another without a gap, so
/// that the three projections [(A' + 2·K')·D, H] and the two [2·F/tp, H] are one matrix each.
struct TensorPlace {
  int unit = 0;
  std::int64_t offset = 0;
};

/// Rows of the vocabulary held here.
struct VocabularySlice {
  std::int64_t first = 0, count = 0;
};

class Layout {
 public:
  /// The units of the ranks at a position. The plan must have passed validatePlan.
  Layout(const ModelConfig& model, const PlanConfig& plan, const Position& position);
  /// The whole model in one place: what every plan's slices are slices of.
  static Layout whole(const ModelConfig& model);

  const Position& position() const { return position_; }
  const std::vector<Unit>& units() const { return units_; }
  const Unit& unit(int index) const { return units_[static_cast<std::size_t>(index)]; }
  int unitCount() const { return static_cast<int>(units_.size()); }
  /// Index of the unit of that name, or −1 when it is held elsewhere.
  int findUnit(const std::string& name) const;

  /// The layers of this stage's chunks: chunk c is virtual stage c·pp + stage.
  const std::vector<LayerRange>& chunks() const { return chunks_; }
  std::int64_t stageLayers() const { return stageLayers_; }
  /// How many layers of this stage come before this one.
  std::int64_t placeInStage(std::int64_t layer) const;
  bool hasEmbedding() const { return hasEmbedding_; }  ///< looks tokens up (the first stage)
  bool hasHead() const { return hasHead_; }            ///< computes the loss (the last stage)

  int embeddingUnit() const { return 0; }
  /// The units of a layer, in the order of its program.
  const UnitRange& layerUnits(std::int64_t layer) const {
    return layerUnits_[static_cast<std::size_t>(placeInStage(layer))];
  }
  /// A tensor of a layer by its name in the layer's program. Errors: Failure internal for one that the layer lacks.
  TensorPlace tensorPlace(std::int64_t layer, const std::string& name) const;
  /// The units of the block of a layer (attention, MLP) that a unit belongs to; an end's own unit.
  const UnitRange& blockOf(int unitIndex) const { return blocks_[static_cast<std::size_t>(unitIndex)]; }
  /// The unit with head weights and the final norm's gain; with tied embeddings the embedding's own.
  int headUnit() const { return headUnit_; }
  std::int64_t finalNormOffset() const { return finalNormOffset_; }
  const VocabularySlice& vocabulary() const { return vocabulary_; }

  /// Sum and largest of paddedElements.
  std::int64_t totalElements() const { return total_; }
  std::int64_t largestElements() const { return largest_; }
  /// Parameters held at this position, without padding.
  std::int64_t parameters() const { return parameters_; }

  std::int64_t parameterShard(int unitIndex) const {
    return unit(unitIndex).paddedElements / parameterShards_;
  }
  std::int64_t optimizerShard(int unitIndex) const { return parameterShard(unitIndex) / optimizerShards_; }
  /// Sum over the units before this one, in padded elements.
  std::int64_t unitStart(int unitIndex) const { return starts_[static_cast<std::size_t>(unitIndex)]; }

 private:
  void appendEnd(const ModelConfig& model, const PlanConfig& plan, const std::string& name);
  void appendLayer(const ModelConfig& model, const PlanConfig& plan, std::int64_t layer);
  void append(Unit unit, const UnitRange& block);

  Position position_;
  std::vector<Unit> units_;
  std::vector<LayerRange> chunks_;
  std::vector<std::int64_t> starts_;
  std::vector<UnitRange> layerUnits_;  ///< by place in the stage
  std::vector<UnitRange> blocks_;      ///< by unit
  VocabularySlice vocabulary_;
  std::int64_t total_ = 0, largest_ = 0, parameters_ = 0, finalNormOffset_ = 0, stageLayers_ = 0;
  std::int64_t parameterShards_, optimizerShards_;
  int headUnit_ = 0;
  bool hasEmbedding_ = true, hasHead_ = true;
};

}  // namespace internevo::trainer
