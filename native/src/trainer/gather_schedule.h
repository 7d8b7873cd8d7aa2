// What a rank gathers in a step, in the order in which it is used: known before the step, so that it can go ahead.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/layout.h"
#include "trainer/pipeline_schedule.h"

namespace internevo::trainer {

/// Units that stand together in one slot of the pool.
struct GatherGroup {
  std::vector<int> units;   ///< in the order of their first use
  bool ahead = false;       ///< gathered while the group before it is in use
  std::int32_t microBatch = 0;

  bool operator==(const GatherGroup&) const = default;
};

/// Forward: the embedding; each layer by modules (none, intra-layer), by blocks, or whole (inter-layer). Backward: the head; each layer by
/// modules (none, intra-layer) or blocks, from its end; a layer that is computed again is gathered whole, once for both.
std::vector<GatherGroup> gatherSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations);

/// Elements of a group's units.
std::int64_t elementsOf(const GatherGroup& group, const Layout& layout);

/// Elements of one slot of the pool: the largest group. One slot without overlap, two with.
std::int64_t gatherSlotElements(const std::vector<GatherGroup>& schedule, const Layout& layout);

/// Units whose gradients are staged and reduced together: the unit, or with overlap by blocks its block.
UnitRange gradientGroupOf(const PlanConfig& plan, const Layout& layout, int unit);
/// Elements of one slot of the gradient staging. Two slots where reductions run beside the backward pass, else one.
std::int64_t gradientSlotElements(const PlanConfig& plan, const Layout& layout);

/// How often a step adds to the gradient of a unit.
std::int64_t contributionsOf(const PlanConfig& plan, const Layout& layout, int unit);

}  // namespace internevo::trainer
