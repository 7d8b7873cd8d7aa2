#include "trainer/gather_schedule.h"

#include <algorithm>

namespace internevo::trainer {

namespace {

using Groups = std::vector<std::vector<LayerModule>>;

constexpr LayerModule kQkv = LayerModule::queryKeyValue, kOutput = LayerModule::attentionOutput;
constexpr LayerModule kGateUp = LayerModule::gateUp, kDown = LayerModule::down;
const Groups kForwardModules{{kQkv}, {kOutput}, {kGateUp}, {kDown}};
const Groups kForwardBlocks{{kQkv, kOutput}, {kGateUp, kDown}};
const Groups kWhole{{kQkv, kOutput, kGateUp, kDown}};
const Groups kBackwardModules{{kDown}, {kGateUp}, {kOutput}, {kQkv}};
const Groups kBackwardBlocks{{kDown, kGateUp}, {kOutput, kQkv}};

const Groups& forwardGroups(const PlanConfig& plan) {
  switch (plan.forwardOverlap) {
    case ForwardOverlap::none:
    case ForwardOverlap::intraLayer: return kForwardModules;
    case ForwardOverlap::block: return kForwardBlocks;
    case ForwardOverlap::interLayer: break;
  }
  return kWhole;
}

const Groups& backwardGroups(const PlanConfig& plan, bool recomputed) {
  if (recomputed) return kWhole;
  return plan.backwardOverlap == BackwardOverlap::block ? kBackwardBlocks : kBackwardModules;
}

class Scheduler {
 public:
  Scheduler(const PlanConfig& plan, const Layout& layout, const PipelineOperation& operation)
      : plan_(plan), layout_(layout), operation_(operation) {}

  void end(int unit, std::vector<GatherGroup>* schedule) const { schedule->push_back(group({unit})); }
  void layer(std::int64_t layer, const Groups& groups, std::vector<GatherGroup>* schedule) const {
    for (const auto& modules : groups) {
      std::vector<int> units;
      for (const LayerModule module : modules) units.push_back(layout_.layerUnit(layer, module));
      schedule->push_back(group(std::move(units)));
    }
  }

 private:
  GatherGroup group(std::vector<int> units) const {
    const bool ahead = operation_.pass == Pass::forward ? plan_.forwardOverlap != ForwardOverlap::none
                                                        : plan_.backwardOverlap != BackwardOverlap::none;
    return {std::move(units), ahead, static_cast<std::int32_t>(operation_.microBatch)};
  }

  const PlanConfig& plan_;
  const Layout& layout_;
  const PipelineOperation operation_;
};

}  // namespace

std::vector<GatherGroup> gatherSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations) {
  std::vector<GatherGroup> schedule;
  if (plan.parameterSharding == 1) return schedule;
  const std::int64_t recomputed = plan.recomputedOf(layout.stageLayers());
  for (const PipelineOperation& operation : operations) {
    const Scheduler add(plan, layout, operation);
    const LayerRange& range = layout.chunks()[static_cast<std::size_t>(operation.chunk)];
    if (operation.pass == Pass::forward) {
      if (layout.hasEmbedding() && operation.chunk == 0) add.end(layout.embeddingUnit(), &schedule);
      for (std::int64_t i = range.first; i < range.last; ++i) add.layer(i, forwardGroups(plan), &schedule);
      continue;
    }
    if (layout.hasHead() && operation.chunk + 1 == plan.pipelineChunks) add.end(layout.headUnit(), &schedule);
    for (std::int64_t i = range.last; i-- > range.first;) {
      add.layer(i, backwardGroups(plan, layout.placeInStage(i) < recomputed), &schedule);
    }
  }
  return schedule;
}

std::int64_t elementsOf(const GatherGroup& group, const Layout& layout) {
  std::int64_t sum = 0;
  for (const int unit : group.units) sum += layout.unit(unit).paddedElements;
  return sum;
}

std::int64_t gatherSlotElements(const std::vector<GatherGroup>& schedule, const Layout& layout) {
  std::int64_t largest = 0;
  for (const GatherGroup& group : schedule) largest = std::max(largest, elementsOf(group, layout));
  return largest;
}

UnitRange gradientGroupOf(const PlanConfig& plan, const Layout& layout, int unit) {
  return plan.backwardOverlap == BackwardOverlap::block ? layout.blockOf(unit) : UnitRange{unit, 1};
}

std::int64_t gradientSlotElements(const PlanConfig& plan, const Layout& layout) {
  std::int64_t largest = 0;
  for (int unit = 0; unit < layout.unitCount(); ++unit) {
    const UnitRange group = gradientGroupOf(plan, layout, unit);
    std::int64_t sum = 0;
    for (int i = 0; i < group.count; ++i) sum += layout.unit(group.first + i).paddedElements;
    largest = std::max(largest, sum);
  }
  return largest;
}

std::int64_t contributionsOf(const PlanConfig& plan, const Layout& layout, int unit) {
  const bool embeds = layout.hasEmbedding() && unit == layout.embeddingUnit();
  const bool head = layout.hasHead() && unit == layout.headUnit();
  return plan.microBatches * (embeds && head ? 2 : 1);
}

}  // namespace internevo::trainer
