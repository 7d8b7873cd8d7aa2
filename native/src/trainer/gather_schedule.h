// What a rank gathers in a step, in the order in which it is used: known before the step, so that it can go ahead.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/layout.h"
#include "trainer/pipeline_schedule.h"
#include "trainer/ring_plan.h"

namespace internevo::trainer {

/// Units that stand together in the pool.
struct GatherGroup {
  std::vector<int> units;  ///< in the order of their first use
  bool ahead = false;      ///< gathered while groups before it are in use
  bool backward = false;   ///< for a backward pass
  std::int32_t microBatch = 0;
  std::int64_t afterReductions = 0;  ///< how many of the step's reductions are to be submitted before it

  bool operator==(const GatherGroup&) const = default;
};

/// Forward: the embedding; each layer by modules (none, intra-layer), by blocks, or whole (inter-layer). Backward: the head; each layer by
/// modules (none, intra-layer) or blocks, from its end; a layer that is computed again is gathered whole, once for both. A layer
/// that makes a value of a block again has the units of that block together, from the one that makes it on, in the order of their first use.
std::vector<GatherGroup> gatherSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations);
/// Of evaluation: forward passes, and the head behind those of the last layers. Its groups are all of a training step's too, so
/// that they have room in the same pool.
std::vector<GatherGroup> evaluationGatherSchedule(const PlanConfig& plan, const Layout& layout,
                                                  const std::vector<PipelineOperation>& forwardPasses);

/// Elements of a group's units.
std::int64_t elementsOf(const GatherGroup& group, const Layout& layout);

/// Elements of the largest group. The pool has memory of one without overlap, of two with.
std::int64_t gatherSlotElements(const std::vector<GatherGroup>& schedule, const Layout& layout);

/// Units whose gradients are staged and reduced together: the unit, or with overlap by blocks its block.
UnitRange gradientGroupOf(const PlanConfig& plan, const Layout& layout, int unit);
/// Elements of the largest of them. The staging has memory of two where reductions run beside the backward pass, else of one.
std::int64_t gradientSlotElements(const PlanConfig& plan, const Layout& layout);
/// What a rank stages in a step, in order.
std::vector<UnitRange> gradientSchedule(const PlanConfig& plan, const Layout& layout,
                                        const std::vector<PipelineOperation>& operations);
std::int64_t elementsOf(const UnitRange& units, const Layout& layout);

/// Gathers and reductions share a lane: which goes first is decided by what is needed first. A reduction is needed when another
/// group's gradient is to stand in its place; a gather behind that use lets it go first. `reductions` and their places: the
/// gradient schedule, of a plan whose reductions run beside the backward pass.
void letReductionsPass(const std::vector<UnitRange>& reductions, const std::vector<RingPlace>& places,
                       const Layout& layout, std::vector<GatherGroup>* gathers);

/// How often a step adds to the gradient of a unit.
std::int64_t contributionsOf(const PlanConfig& plan, const Layout& layout, int unit);

}  // namespace internevo::trainer
