#pragma once

#include <functional>

#include "internevo/collectives.h"
#include "probe/config.h"

namespace internevo::probe {

using Emit = std::function<void(const Json&)>;

struct Outcome {
  Status status;
  /// Every rank has an error and goes home by itself; those without a message have nothing to report.
  bool everyRankKnows = false;
};

/// Measures everything that the configuration asks for, on all ranks together; rank 0 emits the events.
/// Errors: outOfMemory (a point does not fit), communicationError, internal.
Outcome runProbe(const Config& config, const MpiSession& session, const Emit& emit);

}  // namespace internevo::probe
