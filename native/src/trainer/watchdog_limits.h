// When a rank counts as lost; see watchdog.h.
#pragma once

namespace internevo::trainer {

struct WatchdogLimits {
  double beatSeconds = 0.5;
  double silenceSeconds = 5;
  double stallSeconds = 8;
  double stallFactor = 20;
  double firstStepSeconds =
      300;  ///< the stall limit until a first step has ended: nothing is known about lengths yet
};

}  // namespace internevo::trainer
