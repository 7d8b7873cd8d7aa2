// Which tokens of a sequence a rank holds, and which its attention sees.
//
// Sequence ranks make a grid of u × c: u neighbours share the heads, c ranks share the sequence as a ring. Context rank k
// of c holds the zigzag chunks k and 2c − 1 − k of 2c, in this order, so that causal work is equal on all; the u ranks of
// that k hold consecutive parts of these S/c rows.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/config.h"

namespace internevo::trainer {

/// Tokens [first, first + count) of a sequence.
struct Stretch {
  std::int64_t first = 0, count = 0;
};

/// At most two stretches, the rows of a rank in their order.
struct SequencePart {
  std::array<Stretch, 2> stretches{};
  int count = 0;

  std::int64_t rows() const { return stretches[0].count + stretches[1].count; }
};

/// A rank's place in the grid.
struct SequencePlace {
  int head = 0, context = 0;
};
/// Errors: Failure internal for a rank that the mesh does not have.
SequencePlace sequencePlaceOf(const Config& config, int rank);

/// What its products see: its own S/sp tokens, or with tensor parallelism all.
SequencePart ownTokens(const Config& config, const SequencePlace& place);
/// What its attention sees, of its heads: S/c tokens.
SequencePart attentionTokens(const Config& config, const SequencePlace& place);

}  // namespace internevo::trainer
