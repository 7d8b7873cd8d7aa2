#include "trainer/sequence_part.h"

#include <algorithm>

#include "comm/ring_attention.h"
#include "trainer/groups.h"

namespace internevo::trainer {

namespace {

/// Rows [first, first + count) of those that context rank `context` holds.
SequencePart partOf(const Config& c, int context, std::int64_t first, std::int64_t count) {
  const int size = c.plan.contextParallel;
  SequencePart part;
  if (size == 1) {
    part.stretches[0] = {first, count}, part.count = 1;
    return part;
  }
  const std::int64_t chunk = c.sequenceLengthTokens / (2 * size), end = first + count;
  while (first < end) {
    const std::int64_t next = std::min(end, first < chunk ? chunk : 2 * chunk);
    const Stretch stretch{zigzagPosition(c.sequenceLengthTokens, size, context, first), next - first};
    Stretch* const before = part.count == 0 ? nullptr : &part.stretches[0];
    if (before != nullptr && before->first + before->count == stretch.first) {
      before->count += stretch.count;  // the last context rank's chunks are neighbours
    } else {
      part.stretches[static_cast<std::size_t>(part.count++)] = stretch;
    }
    first = next;
  }
  return part;
}

}  // namespace

SequencePlace sequencePlaceOf(const Config& c, int rank) {
  const std::vector<int>& group = groupOf(c.mesh.sequenceParallel, rank);
  const int place = static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
  return {place % c.plan.headRanks(), place / c.plan.headRanks()};
}

SequencePart ownTokens(const Config& c, const SequencePlace& place) {
  if (c.plan.tensorParallel > 1) return attentionTokens(c, place);
  const std::int64_t own = c.sequenceLengthTokens / c.plan.sequenceParallel;
  return partOf(c, place.context, place.head * own, own);
}

SequencePart attentionTokens(const Config& c, const SequencePlace& place) {
  return partOf(c, place.context, 0, c.sequenceLengthTokens / c.plan.contextParallel);
}

}  // namespace internevo::trainer
