#include "trainer/layout.h"

#include <algorithm>
#include <cmath>

#include "internevo/tensor.h"
#include "trainer/failure.h"
#include "trainer/groups.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kShardElements =
    64;  // shards begin at multiples: aligned, and whole blocks of the norm's sum

/// What a rank has of a dimension: elements [first, first + count), in room for `room`.
struct Part {
  std::int64_t first = 0, count = 0, room = 0;
  std::int64_t replicas = 1;  ///< neighbouring ranks with this very part
};

Part partOf(const LayerProgram& program, const ModelConfig& model, const std::string& dimension, int ranks,
            int index) {
  const std::int64_t whole = program.size(model, dimension), room = program.size(model, dimension, ranks);
  switch (program.dimension(dimension).cut) {
    case Cut::whole: return {0, whole, whole, ranks};
    case Cut::shared: {
      const std::int64_t heads = program.count(model, dimension);
      const std::int64_t replicas = heads < ranks ? ranks / heads : 1;
      return {index / replicas * room, room, room, replicas};
    }
    case Cut::equal:
    case Cut::roundedUp: break;
  }
  const std::int64_t first = std::min(whole, index * room);
  return {first, std::min(whole, first + room) - first, room, 1};
}

/// Puts the slices of tensors behind one another in their unit.
class Slicer {
 public:
  Slicer(const LayerProgram& program, const ModelConfig& model, int tensorParallel, int index)
      : program_(program), model_(model), ranks_(tensorParallel), index_(index) {}

  void put(const ProgramTensor& tensor, const std::string& prefix, Unit* unit) const {
    const Part one{0, 1, 1, ranks_};
    const Part rows = tensor.rows.empty() ? one : partOf(program_, model_, tensor.rows, ranks_, index_);
    const Part columns = partOf(program_, model_, tensor.columns, ranks_, index_);
    LogicalTensor t;
    t.name = prefix + tensor.name, t.kind = tensor.kind;
    t.initStandardDeviation = deviationOf(tensor.initial);
    t.globalRows = tensor.rows.empty() ? 1 : program_.size(model_, tensor.rows);
    t.globalColumns = program_.size(model_, tensor.columns);
    t.rows = rows.count, t.firstRow = rows.first;
    t.columns = columns.count, t.firstColumn = columns.first;
    t.tensorReplicas = static_cast<int>(std::min(rows.replicas, columns.replicas));
    t.primary = index_ % t.tensorReplicas == 0;
    t.offset = unit->elements;
    unit->elements += rows.room * columns.room;
    unit->tensors.push_back(std::move(t));
  }

 private:
  double deviationOf(Initial initial) const {
    switch (initial) {
      case Initial::normal: return model_.initStandardDeviation;
      // Projections into the residual stream begin smaller, so that its variance does not grow with depth (GPT-2).
      case Initial::normalByDepth:
        return model_.initStandardDeviation / std::sqrt(2.0 * static_cast<double>(model_.layers));
      case Initial::ones:
      case Initial::zeros: break;
    }
    return 0;
  }

  const LayerProgram& program_;
  const ModelConfig& model_;
  const int ranks_, index_;
};

}  // namespace

Position positionOf(const MeshConfig& mesh, int rank) {
  const auto place = [&](const Groups& groups) {
    const std::vector<int>& group = groupOf(groups, rank);
    return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
  };
  return {place(mesh.pipelineParallel), place(mesh.tensorParallel)};
}

LayerRange layersOf(std::int64_t layers, std::int64_t stages, std::int64_t index) {
  const std::int64_t each = layers / stages, longer = layers % stages;
  const std::int64_t first = index * each + std::min(index, longer);
  return {first, first + each + (index < longer ? 1 : 0)};
}

Layout Layout::whole(const ModelConfig& model) { return {model, PlanConfig{}, Position{}}; }

Layout::Layout(const ModelConfig& m, const PlanConfig& plan, const Position& position)
    : position_(position),
      parameterShards_(plan.parameterSharding),
      optimizerShards_(plan.optimizerStateSharding) {
  const int pp = plan.pipelineParallel, last = pp - 1;
  hasEmbedding_ = position.stage == 0;
  hasHead_ = position.stage == last;
  const Part part = partOf(layerProgram(m, 0), m, "vocabulary", plan.tensorParallel, position.tensorIndex);
  vocabulary_ = {part.first, part.count};
  for (int chunk = 0; chunk < plan.pipelineChunks; ++chunk) {
    chunks_.push_back(
        layersOf(m.layers, std::int64_t{pp} * plan.pipelineChunks, chunk * pp + position.stage));
    stageLayers_ += chunks_.back().count();
  }
  if (hasEmbedding_ || (m.tiedEmbeddings && hasHead_)) appendEnd(m, plan, "embedding");
  for (const LayerRange& range : chunks_) {
    for (std::int64_t layer = range.first; layer < range.last; ++layer) appendLayer(m, plan, layer);
  }
  if (!m.tiedEmbeddings && hasHead_) {
    headUnit_ = unitCount();
    appendEnd(m, plan, "head");
  }
}

void Layout::appendLayer(const ModelConfig& m, const PlanConfig& plan, std::int64_t layer) {
  const LayerProgram& program = layerProgram(m, layer);
  const Slicer slicer(program, m, plan.tensorParallel, position_.tensorIndex);
  const ProgramFlags flags = flagsOf(m, plan);
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  const int first = unitCount();
  for (int place = 0; place < program.unitCount(); ++place) {
    const ProgramUnit& own = program.units()[static_cast<std::size_t>(place)];
    Unit unit;
    unit.name = prefix + own.name;
    for (const ProgramTensor& tensor : program.tensors()) {
      if (tensor.unit == own.name && holds(tensor, flags)) slicer.put(tensor, prefix, &unit);
    }
    const auto& operators = program.operators();
    unit.runsAgain = std::any_of(operators.begin(), operators.end(), [&](const ProgramOperator& one) {
      return one.unit == own.name && program.runsAgain(one, flags);
    });
    UnitRange block{first + place, 1};
    const auto inBlock = [&](int other) {
      return other >= 0 && other < program.unitCount() &&
             program.units()[static_cast<std::size_t>(other)].block == own.block;
    };
    while (inBlock(block.first - first - 1)) --block.first, ++block.count;
    while (inBlock(block.first - first + block.count)) ++block.count;
    append(std::move(unit), block);
  }
  layerUnits_.push_back({first, unitCount() - first});
}

/// The unit of the embedding or of the head. The final norm's gain stands behind the weights of the head.
void Layout::appendEnd(const ModelConfig& m, const PlanConfig& plan, const std::string& name) {
  const LayerProgram& program = layerProgram(m, 0);
  const Slicer slicer(program, m, plan.tensorParallel, position_.tensorIndex);
  const ProgramFlags flags = flagsOf(m, plan);
  Unit unit;
  unit.name = name;
  for (const ProgramTensor& tensor : program.endTensors()) {
    if (tensor.unit != name || !holds(tensor, flags)) continue;
    if (tensor.name == "finalNorm") finalNormOffset_ = unit.elements;
    slicer.put(tensor, "", &unit);
  }
  unit.onBothEnds = m.tiedEmbeddings && plan.pipelineParallel > 1;
  if (unit.onBothEnds && position_.stage != 0) {
    for (LogicalTensor& tensor : unit.tensors) tensor.primary = false;
  }
  append(std::move(unit), {unitCount(), 1});
}

void Layout::append(Unit unit, const UnitRange& block) {
  unit.paddedElements = alignUp(unit.elements, kShardElements * parameterShards_ * optimizerShards_);
  starts_.push_back(total_);
  total_ += unit.paddedElements;
  largest_ = std::max(largest_, unit.paddedElements);
  for (const LogicalTensor& tensor : unit.tensors) parameters_ += tensor.elements();
  units_.push_back(std::move(unit));
  blocks_.push_back(block);
}

int Layout::findUnit(const std::string& name) const {
  const auto found =
      std::find_if(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units_.end() ? -1 : static_cast<int>(found - units_.begin());
}

TensorPlace Layout::tensorPlace(std::int64_t layer, const std::string& name) const {
  const UnitRange& range = layerUnits(layer);
  const std::string whole = "layers." + std::to_string(layer) + "." + name;
  for (int unit = range.first; unit < range.first + range.count; ++unit) {
    for (const LogicalTensor& tensor : units_[static_cast<std::size_t>(unit)].tensors) {
      if (tensor.name == whole) return {unit, tensor.offset};
    }
  }
  throw Failure(StatusCode::internal, "there is no tensor " + whole);
}

std::int64_t Layout::placeInStage(std::int64_t layer) const {
  std::int64_t before = 0;
  for (const LayerRange& range : chunks_) {
    if (layer < range.last) return before + layer - range.first;
    before += range.count();
  }
  return before;
}

}  // namespace internevo::trainer
