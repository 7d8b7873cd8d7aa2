// When a device came to what it was given, whose calls return before their work is done.
#pragma once

#include <cstdint>

#include "internevo/status.h"

namespace internevo {

class Moments {
 public:
  virtual ~Moments() = default;

  /// Forgets all moments and sets the clock: waits until the device has done what the caller's lane was given.
  virtual Status reset() = 0;
  /// The moment at which all that was given to the present lane before is done. *moment is its number, −1 when there is no room.
  virtual Status mark(std::int64_t* moment) = 0;
  /// Waits until the device has come to it. Of the steady clock, as near as a reset's wait is told; the distance of two moments is by
  /// the device's own clock. Errors: internal for a moment that was not marked since the reset.
  virtual Status read(std::int64_t moment, std::int64_t* nanoseconds) = 0;
  /// Marks for which there was no room since the reset.
  virtual std::int64_t missed() const = 0;
};

}  // namespace internevo
