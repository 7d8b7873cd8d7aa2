// What the machine is and what it can do at best.
#pragma once

#include "probe/points.h"

namespace internevo::probe {

/// Measures on all ranks at once and fills the fields of the "device" event; rates are of one rank.
Status describeDevice(const MpiSession& session, Backend& backend, Timer& timer, std::int64_t budgetBytes,
                      double runtimeBytes, Json* event);

}  // namespace internevo::probe
