// The plan of a rank's memory as people read it: every piece of the arena, and when in a step it is in use.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/memory_plan.h"

namespace internevo::trainer {

/// {"stage", "arenaBytes", "phases", "operations", "chunks", "pieces"}.
/// operations: the stage's passes in their order: {"pass", "microBatch", "chunk"}; then the parameters are updated.
/// chunks: {"firstLayer", "layers", "inFlight"}. phases: what the passes of a layer, and what is around them, consist of.
/// A piece: {"name", "line", "offset", "bytes", "lifetime"}, and uses, firstUse, lastUse where pieces share memory.
/// lifetime, one of
///   {"kind": "step"}                  all the time
///   {"kind": "work", "phases", "layers"?}  inside those phases only (of those layers only); what it holds is not kept
///   {"kind": "kept", "chunk", "place", "from": {"layer", "phase"}, "until": {"layer", "phase"}}
///                                     from the forward phase to the end of the backward phase of the micro-batches whose
///                                     number mod the chunk's inFlight is `place`
nlohmann::ordered_json memoryMapOf(const Config& config, int stage, const MemoryPlan& plan);

}  // namespace internevo::trainer
