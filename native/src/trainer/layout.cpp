#include "trainer/layout.h"

#include <algorithm>
#include <cmath>

#include "internevo/tensor.h"
#include "trainer/groups.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kShardElements =
    64;  // shards begin at multiples: aligned, and whole blocks of the norm's sum

/// Puts slices behind one another in a unit.
class Slicer {
 public:
  Slicer(Unit* unit, int tensorParallel, int index) : unit_(unit), tp_(tensorParallel), index_(index) {}

  void gain(const std::string& name, std::int64_t width) {
    LogicalTensor t = named(name, TensorKind::gain, 1, width, 0);
    t.tensorReplicas = tp_, t.primary = index_ == 0;
    put(t, t.elements());
  }
  /// This rank's of tp equal parts of the rows.
  void rows(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
    LogicalTensor t = named(name, TensorKind::matrix, rows, columns, deviation);
    t.rows = rows / tp_, t.firstRow = index_ * t.rows;
    put(t, t.elements());
  }
  void columns(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
    LogicalTensor t = named(name, TensorKind::matrix, rows, columns, deviation);
    t.columns = columns / tp_, t.firstColumn = index_ * t.columns;
    put(t, t.elements());
  }
  /// Key or value projection: this rank's heads, or the one that it shares with its neighbours.
  void keyRows(const std::string& name, std::int64_t heads, std::int64_t headSize, std::int64_t columns,
               double deviation) {
    if (heads >= tp_) return rows(name, heads * headSize, columns, deviation);
    LogicalTensor t = named(name, TensorKind::matrix, heads * headSize, columns, deviation);
    t.rows = headSize, t.firstRow = index_ * heads / tp_ * headSize;
    t.tensorReplicas = static_cast<int>(tp_ / heads), t.primary = index_ % t.tensorReplicas == 0;
    put(t, t.elements());
  }
  void vocabularyRows(const std::string& name, const VocabularySlice& slice, std::int64_t vocabulary,
                      std::int64_t columns, double deviation) {
    LogicalTensor t = named(name, TensorKind::matrix, vocabulary, columns, deviation);
    t.rows = slice.count, t.firstRow = slice.first;
    put(t, (vocabulary + tp_ - 1) / tp_ * columns);
  }

 private:
  static LogicalTensor named(const std::string& name, TensorKind kind, std::int64_t rows,
                             std::int64_t columns, double deviation) {
    LogicalTensor t;
    t.name = name, t.kind = kind, t.rows = t.globalRows = rows, t.columns = t.globalColumns = columns;
    t.initStandardDeviation = deviation;
    return t;
  }
  void put(LogicalTensor tensor, std::int64_t room) {
    tensor.offset = unit_->elements;
    unit_->elements += room;
    unit_->tensors.push_back(std::move(tensor));
  }

  Unit* unit_;
  const std::int64_t tp_;
  const std::int64_t index_;
};

std::vector<Unit> layerUnitsOf(const ModelConfig& m, std::int64_t layer, int tensorParallel, int index) {
  const std::string prefix = "layers." + std::to_string(layer);
  const double deviation = m.initStandardDeviation;
  // Projections into the residual stream begin smaller, so that its variance does not grow with depth (GPT-2).
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
  std::vector<Unit> units(kLayerModules);
  const char* const names[kLayerModules] = {".qkv", ".attentionOutput", ".gateUp", ".mlpOutput"};
  for (std::size_t i = 0; i < units.size(); ++i) units[i].name = prefix + names[i];
  Slicer qkv(&units[0], tensorParallel, index), output(&units[1], tensorParallel, index);
  Slicer gateUp(&units[2], tensorParallel, index), down(&units[3], tensorParallel, index);
  qkv.gain(prefix + ".attentionNorm", m.hiddenSize);
  qkv.rows(prefix + ".wq", m.hiddenSize, m.hiddenSize, deviation);
  qkv.keyRows(prefix + ".wk", m.kvHeads, m.headSize(), m.hiddenSize, deviation);
  qkv.keyRows(prefix + ".wv", m.kvHeads, m.headSize(), m.hiddenSize, deviation);
  output.columns(prefix + ".wo", m.hiddenSize, m.hiddenSize, residual);
  gateUp.gain(prefix + ".mlpNorm", m.hiddenSize);
  gateUp.rows(prefix + ".gate", m.ffnHiddenSize, m.hiddenSize, deviation);
  gateUp.rows(prefix + ".up", m.ffnHiddenSize, m.hiddenSize, deviation);
  down.columns(prefix + ".down", m.hiddenSize, m.ffnHiddenSize, residual);
  return units;
}

VocabularySlice vocabularyOf(std::int64_t vocabulary, int tensorParallel, int index) {
  const std::int64_t room = (vocabulary + tensorParallel - 1) / tensorParallel;
  const std::int64_t first = std::min(vocabulary, index * room);
  return {first, std::min(vocabulary, first + room) - first};
}

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
  const int pp = plan.pipelineParallel, tp = plan.tensorParallel, last = pp - 1;
  hasEmbedding_ = position.stage == 0;
  hasHead_ = position.stage == last;
  vocabulary_ = vocabularyOf(m.vocabularySize, tp, position.tensorIndex);
  for (int chunk = 0; chunk < plan.pipelineChunks; ++chunk) {
    chunks_.push_back(
        layersOf(m.layers, std::int64_t{pp} * plan.pipelineChunks, chunk * pp + position.stage));
    stageLayers_ += chunks_.back().count();
  }
  if (hasEmbedding_ || (m.tiedEmbeddings && hasHead_)) appendEnd(m, plan, false);
  firstLayerUnit_ = unitCount();
  for (const LayerRange& range : chunks_) {
    for (std::int64_t layer = range.first; layer < range.last; ++layer) {
      for (Unit& unit : layerUnitsOf(m, layer, tp, position.tensorIndex)) append(std::move(unit));
    }
  }
  if (!m.tiedEmbeddings && hasHead_) {
    headUnit_ = unitCount();
    appendEnd(m, plan, true);
  }
  layerOffsets_ = {0, m.hiddenSize, 0, 0, m.hiddenSize, 0};  // the gains stand first
}

/// The unit of the embedding or of the head. The final norm's gain stands behind the head's weights.
void Layout::appendEnd(const ModelConfig& m, const PlanConfig& plan, bool head) {
  Unit unit;
  unit.name = head ? "head" : "embedding";
  Slicer put(&unit, plan.tensorParallel, position_.tensorIndex);
  put.vocabularyRows(unit.name, vocabulary_, m.vocabularySize, m.hiddenSize, m.initStandardDeviation);
  finalNormOffset_ = unit.elements;
  if (head || m.tiedEmbeddings) put.gain("finalNorm", m.hiddenSize);
  unit.onBothEnds = m.tiedEmbeddings && plan.pipelineParallel > 1;
  if (unit.onBothEnds && position_.stage != 0) {
    for (LogicalTensor& tensor : unit.tensors) tensor.primary = false;
  }
  append(std::move(unit));
}

void Layout::append(Unit unit) {
  unit.paddedElements = alignUp(unit.elements, kShardElements * parameterShards_ * optimizerShards_);
  starts_.push_back(total_);
  total_ += unit.paddedElements;
  largest_ = std::max(largest_, unit.paddedElements);
  for (const LogicalTensor& tensor : unit.tensors) parameters_ += tensor.elements();
  units_.push_back(std::move(unit));
}

int Layout::findUnit(const std::string& name) const {
  const auto found =
      std::find_if(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.name == name; });
  return found == units_.end() ? -1 : static_cast<int>(found - units_.begin());
}

UnitRange Layout::blockOf(int unitIndex) const {
  const int place = unitIndex - firstLayerUnit_;
  if (place < 0 || place >= kLayerModules * stageLayers_) return {unitIndex, 1};
  return {unitIndex - place % 2, 2};
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
