#include "trainer/layout.h"

#include <algorithm>
#include <cmath>

#include "internevo/tensor.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kShardElements = 64;  // shards begin at multiples: aligned, and whole blocks of the norm's sum

void add(Unit* unit, const std::string& name, TensorKind kind, std::int64_t rows, std::int64_t columns,
         double standardDeviation) {
  unit->tensors.push_back({name, kind, rows, columns, unit->elements, standardDeviation});
  unit->elements += rows * columns;
}

Unit layerUnitOf(const ModelConfig& m, std::int64_t layer) {
  const std::string prefix = "layers." + std::to_string(layer);
  const double deviation = m.initStandardDeviation;
  // Projections into the residual stream begin smaller, so that its variance does not grow with depth (GPT-2).
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
  Unit unit{prefix, {}, 0, 0};
  add(&unit, prefix + ".attentionNorm", TensorKind::gain, 1, m.hiddenSize, 0);
  add(&unit, prefix + ".wq", TensorKind::matrix, m.hiddenSize, m.hiddenSize, deviation);
  add(&unit, prefix + ".wk", TensorKind::matrix, m.kvWidth(), m.hiddenSize, deviation);
  add(&unit, prefix + ".wv", TensorKind::matrix, m.kvWidth(), m.hiddenSize, deviation);
  add(&unit, prefix + ".wo", TensorKind::matrix, m.hiddenSize, m.hiddenSize, residual);
  add(&unit, prefix + ".mlpNorm", TensorKind::gain, 1, m.hiddenSize, 0);
  add(&unit, prefix + ".gate", TensorKind::matrix, m.ffnHiddenSize, m.hiddenSize, deviation);
  add(&unit, prefix + ".up", TensorKind::matrix, m.ffnHiddenSize, m.hiddenSize, deviation);
  add(&unit, prefix + ".down", TensorKind::matrix, m.hiddenSize, m.ffnHiddenSize, residual);
  return unit;
}

}  // namespace

Layout::Layout(const ModelConfig& m, const PlanConfig& plan)
    : parameterShards_(plan.parameterSharding), optimizerShards_(plan.optimizerStateSharding) {
  Unit embedding{"embedding", {}, 0, 0};
  add(&embedding, "embedding", TensorKind::matrix, m.vocabularySize, m.hiddenSize, m.initStandardDeviation);
  finalNormOffset_ = m.vocabularySize * m.hiddenSize;
  if (m.tiedEmbeddings) add(&embedding, "finalNorm", TensorKind::gain, 1, m.hiddenSize, 0);
  append(std::move(embedding));
  for (std::int64_t layer = 0; layer < m.layers; ++layer) append(layerUnitOf(m, layer));
  if (!m.tiedEmbeddings) {
    headUnit_ = unitCount();
    Unit head{"head", {}, 0, 0};
    add(&head, "head", TensorKind::matrix, m.vocabularySize, m.hiddenSize, m.initStandardDeviation);
    add(&head, "finalNorm", TensorKind::gain, 1, m.hiddenSize, 0);
    append(std::move(head));
  }
  const auto& layer = units_[1].tensors;
  layerOffsets_ = {layer[0].offset, layer[1].offset, layer[4].offset,
                   layer[5].offset, layer[6].offset, layer[8].offset};
}

void Layout::append(Unit unit) {
  unit.paddedElements = alignUp(unit.elements, kShardElements * parameterShards_ * optimizerShards_);
  starts_.push_back(total_);
  total_ += unit.paddedElements;
  largest_ = std::max(largest_, unit.paddedElements);
  parameters_ += unit.elements;
  units_.push_back(std::move(unit));
}

}  // namespace internevo::trainer
