// When a rank counts as lost; see watchdog.h.
#pragma once

#include "protocol/watchdog_defaults.h"

namespace internevo::trainer {

struct WatchdogLimits {
  double beatSeconds = watchdog_defaults::beatSeconds;
  double silenceSeconds = watchdog_defaults::silenceSeconds;
  double stallSeconds = watchdog_defaults::stallSeconds;
  double stallFactor = watchdog_defaults::stallFactor;
  /// The stall limit until a first step has ended: nothing is known about lengths yet.
  double firstStepSeconds = watchdog_defaults::firstStepSeconds;
};

}  // namespace internevo::trainer
