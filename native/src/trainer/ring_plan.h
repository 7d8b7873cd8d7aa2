// Where groups of buffers stand in a memory that is used again and again, when the order of their use is known: planned
// before the first step, so that as many as possible can be filled ahead.
#pragma once

#include <cstdint>
#include <vector>

namespace internevo::trainer {

struct RingPlace {
  std::int64_t offset = 0;
  std::int64_t after = -1;  ///< the last group before it that takes some of the same memory; −1: none

  bool operator==(const RingPlace&) const = default;
};

/// Places of groups in the order of their use, `sizes` and `capacity` in elements; capacity is at least the largest. A group
/// may be filled when the groups up to its `after` are done with; all between `after` and it are elsewhere. With room for two
/// of the largest a group is never where the one before it is, as with two slots that take turns; smaller groups are further
/// apart. Deterministic: equal sizes give equal places.
std::vector<RingPlace> planRing(const std::vector<std::int64_t>& sizes, std::int64_t capacity);

}  // namespace internevo::trainer
