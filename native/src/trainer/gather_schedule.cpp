#include "trainer/gather_schedule.h"

#include <algorithm>

namespace internevo::trainer {

namespace {

using Groups = std::vector<std::vector<int>>;

enum class Together { units, blocks, layer };

/// The units of a layer in the order of the forward pass, those in one group that stand in the pool together.
Groups groupsOf(const Layout& layout, std::int64_t layer, Together together) {
  const UnitRange& range = layout.layerUnits(layer);
  Groups groups;
  for (int unit = range.first; unit < range.first + range.count; ++unit) {
    const bool first = unit == range.first;
    const bool begins = together == Together::units ||
                        (together == Together::blocks && layout.blockOf(unit).first == unit) || first;
    if (begins) groups.emplace_back();
    groups.back().push_back(unit);
  }
  return groups;
}

Groups forwardGroups(const PlanConfig& plan, const Layout& layout, std::int64_t layer) {
  switch (plan.forwardOverlap) {
    case ForwardOverlap::none:
    case ForwardOverlap::intraLayer: return groupsOf(layout, layer, Together::units);
    case ForwardOverlap::block: return groupsOf(layout, layer, Together::blocks);
    case ForwardOverlap::interLayer: break;
  }
  return groupsOf(layout, layer, Together::layer);
}

/// A layer that is computed again is used from its beginning, another from its end. A block of which some operators run again
/// begins with their unit, and goes back to it at the end: it stays while the units behind it are used.
Groups backwardGroups(const PlanConfig& plan, const Layout& layout, std::int64_t layer, bool recomputed) {
  if (recomputed) return groupsOf(layout, layer, Together::layer);
  const bool byBlocks = plan.backwardOverlap == BackwardOverlap::block;
  const UnitRange& range = layout.layerUnits(layer);
  Groups groups;
  for (int end = range.first + range.count; end > range.first;) {
    const UnitRange& block = layout.blockOf(end - 1);
    int again = block.first;
    while (again < end && !layout.unit(again).runsAgain) ++again;
    if (again < end) groups.emplace_back();
    for (int unit = again; unit < end; ++unit) groups.back().push_back(unit);
    for (int unit = again; unit-- > block.first;) {
      if (!byBlocks || unit + 1 == end) groups.emplace_back();
      groups.back().push_back(unit);
    }
    end = block.first;
  }
  return groups;
}

class Scheduler {
 public:
  Scheduler(const PlanConfig& plan, const PipelineOperation& operation)
      : plan_(plan), operation_(operation) {}

  void end(int unit, std::vector<GatherGroup>* schedule) const { schedule->push_back(group({unit})); }
  void layer(const Groups& groups, std::vector<GatherGroup>* schedule) const {
    for (const std::vector<int>& units : groups) schedule->push_back(group(units));
  }

 private:
  GatherGroup group(std::vector<int> units) const {
    const bool ahead = operation_.pass == Pass::forward ? plan_.forwardOverlap != ForwardOverlap::none
                                                        : plan_.backwardOverlap != BackwardOverlap::none;
    return {std::move(units), ahead, operation_.pass == Pass::backward,
            static_cast<std::int32_t>(operation_.microBatch)};
  }

  const PlanConfig& plan_;
  const PipelineOperation operation_;
};

void addForward(const PlanConfig& plan, const Layout& layout, const PipelineOperation& operation,
                std::vector<GatherGroup>* schedule) {
  const Scheduler add(plan, operation);
  const LayerRange& range = layout.chunks()[static_cast<std::size_t>(operation.chunk)];
  if (layout.hasEmbedding() && operation.chunk == 0) add.end(layout.embeddingUnit(), schedule);
  for (std::int64_t i = range.first; i < range.last; ++i) {
    add.layer(forwardGroups(plan, layout, i), schedule);
  }
}

}  // namespace

std::vector<GatherGroup> evaluationGatherSchedule(const PlanConfig& plan, const Layout& layout,
                                                  const std::vector<PipelineOperation>& forwardPasses) {
  std::vector<GatherGroup> schedule;
  if (plan.parameterSharding == 1) return schedule;
  for (const PipelineOperation& operation : forwardPasses) {
    addForward(plan, layout, operation, &schedule);
    if (layout.hasHead() && operation.chunk + 1 == plan.pipelineChunks)
      Scheduler(plan, operation).end(layout.headUnit(), &schedule);
  }
  return schedule;
}

std::vector<GatherGroup> gatherSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations) {
  std::vector<GatherGroup> schedule;
  if (plan.parameterSharding == 1) return schedule;
  const std::int64_t recomputed = plan.recomputedOf(layout.stageLayers());
  for (const PipelineOperation& operation : operations) {
    if (operation.pass == Pass::forward) {
      addForward(plan, layout, operation, &schedule);
      continue;
    }
    const Scheduler add(plan, operation);
    const LayerRange& range = layout.chunks()[static_cast<std::size_t>(operation.chunk)];
    if (layout.hasHead() && operation.chunk + 1 == plan.pipelineChunks) add.end(layout.headUnit(), &schedule);
    for (std::int64_t i = range.last; i-- > range.first;) {
      add.layer(backwardGroups(plan, layout, i, layout.placeInStage(i) < recomputed), &schedule);
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
    largest = std::max(largest, elementsOf(gradientGroupOf(plan, layout, unit), layout));
  }
  return largest;
}

std::int64_t elementsOf(const UnitRange& units, const Layout& layout) {
  const int last = units.first + units.count - 1;
  return layout.unitStart(last) + layout.unit(last).paddedElements - layout.unitStart(units.first);
}

std::vector<UnitRange> gradientSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations) {
  std::vector<UnitRange> schedule;
  if (plan.parameterSharding == 1 && plan.gradientSharding == 1) return schedule;
  const auto add = [&](int unit) {
    const UnitRange group = gradientGroupOf(plan, layout, unit);
    if (group.count == 1 || schedule.empty() || schedule.back().first != group.first)
      schedule.push_back(group);
  };
  for (const PipelineOperation& operation : operations) {
    if (operation.pass == Pass::forward) continue;
    const LayerRange& range = layout.chunks()[static_cast<std::size_t>(operation.chunk)];
    if (layout.hasHead() && operation.chunk + 1 == plan.pipelineChunks) add(layout.headUnit());
    for (std::int64_t layer = range.last; layer-- > range.first;) {
      const UnitRange& units = layout.layerUnits(layer);
      for (int unit = units.first + units.count; unit-- > units.first;) add(unit);
    }
    if (layout.hasEmbedding() && operation.chunk == 0) add(layout.embeddingUnit());
  }
  return schedule;
}

void letReductionsPass(const std::vector<UnitRange>& reductions, const std::vector<RingPlace>& places,
                       const Layout& layout, std::vector<GatherGroup>* gathers) {
  const auto count = static_cast<std::int64_t>(reductions.size());
  // When each reduction's place is taken again: the first group that it is in the way of.
  std::vector<std::int64_t> needed(reductions.size(), count);
  const auto overlap = [&](std::int64_t a, std::int64_t b) {
    const auto i = static_cast<std::size_t>(a), k = static_cast<std::size_t>(b);
    return places[i].offset < places[k].offset + elementsOf(reductions[k], layout) &&
           places[k].offset < places[i].offset + elementsOf(reductions[i], layout);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t next = i + 1; next < count && needed[static_cast<std::size_t>(i)] == count; ++next) {
      if (overlap(i, next)) needed[static_cast<std::size_t>(i)] = next;
    }
  }
  std::int64_t turn = 0, first = 0;  // the next gradient of the step; reductions that the gather lets pass
  for (GatherGroup& group : *gathers) {
    if (group.backward) {
      const auto holds = [&](const UnitRange& range) {
        return std::any_of(group.units.begin(), group.units.end(),
                           [&](int unit) { return unit >= range.first && unit < range.first + range.count; });
      };
      while (turn < count && !holds(reductions[static_cast<std::size_t>(turn)])) ++turn;
    }
    while (first < turn && needed[static_cast<std::size_t>(first)] < turn) ++first;
    group.afterReductions = first;
  }
}

std::int64_t contributionsOf(const PlanConfig& plan, const Layout& layout, int unit) {
  const bool embeds = layout.hasEmbedding() && unit == layout.embeddingUnit();
  const bool head = layout.hasHead() && unit == layout.headUnit();
  return plan.microBatches * (embeds && head ? 2 : 1);
}

}  // namespace internevo::trainer
