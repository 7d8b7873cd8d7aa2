// What a layer is made of, as data that the planner reads too; README.md says what the members mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace internevo::trainer {

/// How the ranks of a group share a dimension. Shared: with fewer key/value heads than ranks, neighbours have the same head.
enum class Cut { whole, equal, shared, roundedUp };
/// Rows of a value: own tokens; the rows that products see; the rows inside attention; one, whatever the micro-batch.
enum class RowsOf { tokens, block, attention, once };
/// What becomes of a value: it is the residual stream between layers; it is kept for the backward pass; the backward pass
/// makes it again; it is used while a block runs; it is kept in the host's memory.
enum class Fate { stream, kept, again, workspace, host };
enum class TensorKind { matrix, gain, bias };
enum class Initial { normal, normalByDepth, ones, zeros };

struct ProgramCondition {
  std::string when, unless;  ///< flags; empty: none
};

struct ProgramDimension {
  std::string name, of, times;  ///< `of` · `times` elements; sizes of the model, empty: one
  Cut cut = Cut::whole;
};

struct ProgramUnit : ProgramCondition {
  std::string name, block;
};

struct ProgramTensor : ProgramCondition {
  std::string name, unit, huggingFace;
  TensorKind kind = TensorKind::matrix;
  std::string rows, columns;  ///< dimensions; a vector has no rows
  Initial initial = Initial::normal;
};

struct ProgramValue : ProgramCondition {
  std::string name;
  Fate fate = Fate::kept;  ///< fateOf() says what it is under a plan
  /// Flags of the plan under which a value that would be kept is made again, or waits in the host's memory; empty: none.
  std::string againWhen, hostWhen;
  RowsOf rows = RowsOf::tokens;
  std::vector<std::string> width;  ///< dimensions next to one another
  bool float32 = false;            ///< else of the type of activations
  std::string otherwise;           ///< what it is where its condition does not hold
  std::string block;               ///< the block that alone uses it; empty: both
  std::vector<std::string> passes;
};

/// Around an operator in the forward pass; in the backward pass a gather becomes a scatter and the other way round.
struct ProgramCollective : ProgramCondition {
  std::string collective;       ///< all-gather, reduce-scatter, all-to-all
  std::vector<std::string> of;  ///< a message for each of these dimensions; empty: one of the whole value
};

struct ProgramOperator : ProgramCondition {
  std::string name, kind, unit;
  std::string forwardLabel, backwardLabel;  ///< what timelines call it; empty: they don't name it
  std::vector<std::string> parameters, reads, writes;
  std::optional<ProgramCollective> before, behind;
};

/// Flags that conditions name.
struct ProgramFlags {
  bool tiedEmbeddings = false, tensorParallel = false, ulysses = false, contextParallel = false;
  bool queryKeyNorm = false, queryKeyValueBias = false;
  bool ownHeadSize = false;  ///< the heads together are not as wide as the residual stream
  bool gateUpAgain = false, gateUpHost = false;
};
ProgramFlags flagsOf(const ModelConfig& model, const PlanConfig& plan);

/// Every reference by name inside a program was checked. Errors of lookups: Failure internal for what it does not have.
class LayerProgram {
 public:
  /// Errors: Failure internal naming the member.
  static LayerProgram parse(const std::string& text);

  const std::string& name() const { return name_; }
  const std::vector<ProgramUnit>& units() const { return units_; }
  const std::vector<ProgramTensor>& tensors() const { return tensors_; }
  const std::vector<ProgramValue>& values() const { return values_; }
  const std::vector<ProgramOperator>& operators() const { return operators_; }
  const std::vector<ProgramUnit>& endUnits() const { return endUnits_; }
  const std::vector<ProgramTensor>& endTensors() const { return endTensors_; }

  int unitCount() const { return static_cast<int>(units_.size()); }
  /// Place of a unit among those of a layer.
  int unitPlace(const std::string& name) const;
  const ProgramValue& value(const std::string& name) const;
  /// The value of that name, or the one that it is otherwise; null where it is none.
  const ProgramValue* presentValue(const std::string& name, const ProgramFlags& flags) const;
  int valuePlace(const ProgramValue& value) const { return static_cast<int>(&value - values_.data()); }
  const ProgramOperator& operatorOf(const std::string& name) const;
  /// Whether the backward pass of a layer begins the operator's block with it, because what it makes is not kept under this plan. Values
  /// that are made again under every plan come up where they are used.
  bool runsAgain(const ProgramOperator& one, const ProgramFlags& flags) const;

  /// How many of `of` (heads, or elements) one of `ranks` has of a dimension, and its elements.
  std::int64_t count(const ModelConfig& model, const std::string& dimension, int ranks = 1) const;
  std::int64_t size(const ModelConfig& model, const std::string& dimension, int ranks = 1) const;
  std::int64_t width(const ModelConfig& model, const std::vector<std::string>& dimensions,
                     int ranks = 1) const;
  const ProgramDimension& dimension(const std::string& name) const;

 private:
  void check() const;

  std::string name_;
  std::vector<ProgramDimension> dimensions_;
  std::vector<ProgramUnit> units_, endUnits_;
  std::vector<ProgramTensor> tensors_, endTensors_;
  std::vector<ProgramValue> values_;
  std::vector<ProgramOperator> operators_;
};

bool holds(const ProgramCondition& condition, const ProgramFlags& flags);
/// What becomes of a value in a layer that is not recomputed whole.
Fate fateOf(const ProgramValue& value, const ProgramFlags& flags);

/// The program of a layer of a model. Every layer of the models that there are has the same.
const LayerProgram& layerProgram(const ModelConfig& model, std::int64_t layer);

/// decoder.json, as it was when the program was built.
const char* decoderText();

}  // namespace internevo::trainer
