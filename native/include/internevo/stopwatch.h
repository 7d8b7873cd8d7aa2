// Times what is called, by the clock of whoever does it: the program's, or that of a device, whose work goes on after its calls return.
#pragma once

#include <memory>

#include "internevo/status.h"

namespace internevo {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Begins when everything that the caller has called before is done.
  virtual Status start() = 0;
  /// Ends when everything that was called since is done, and waits for that.
  virtual Status stop(double* seconds) = 0;
};

/// The steady clock, for calls that have done their work when they return.
std::unique_ptr<Stopwatch> createHostStopwatch();

}  // namespace internevo
