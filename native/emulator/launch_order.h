// Whether events order what was given to a device's streams as the calls' own order asks: the order in which the CPU backend does the
// same operators, where each call ends before the next begins.
//
// Two pieces of work on different streams that touch the same bytes, one of them writing, must be ordered by the streams and events
// between them (happens-before, by vector clocks), in the order of their calls. It does not matter in which order a run came to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/trace.h"

namespace internevo::cuda::model {

/// `after` must come after `before`, which is on another stream: steps of the trace. `at`: a byte that both touch.
struct Dependency {
  std::int64_t before = 0, after = 0;
  std::uintptr_t at = 0;
};

/// All, but for those that others and the streams imply.
std::vector<Dependency> dependenciesOf(const std::vector<LaunchStep>& steps);

/// Those that nothing ensures; `without`: as if that wait were missing.
std::vector<Dependency> uncovered(const std::vector<LaunchStep>& steps,
                                  const std::vector<Dependency>& dependencies, std::int64_t without = -1);

/// "copy on stream 1 (step 12) and product on stream 0 (step 15) touch the byte at …, and no event is between them"
std::string describe(const std::vector<LaunchStep>& steps, const Dependency& dependency);

}  // namespace internevo::cuda::model
