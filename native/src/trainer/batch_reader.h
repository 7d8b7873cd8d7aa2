// What a rank needs to know of a micro-batch: its tokens, their targets, their positions, and where documents begin.
#pragma once

#include <vector>

#include "internevo/memory_space.h"
#include "internevo/tensor.h"
#include "trainer/layout.h"
#include "trainer/sequence_part.h"
#include "trainer/training_data.h"

namespace internevo::trainer {

/// Planned memory; a view that is empty is not filled.
struct BatchViews {
  View tokens, targets;  ///< int32 [blockRows]; −1: a target that is not counted
  /// int32 [positionRows], for rotary positions, where rows do not follow one another from the first.
  View positions;
  View firstKeys;  ///< int32 [batch · attentionSequence]: AttentionShape::firstKeys, with packed documents
  View documentStarts;  ///< int32 [documents of a sequence + 1], of the sequence that is being read
};

class BatchReader {
 public:
  /// `dataIndex`: which of the data-parallel ranks' sequences. Everything given outlives the object. Fills the positions
  /// where they are those of every sequence.
  /// The views are of `memory`; where the program cannot read it, what they are to hold is prepared beside it.
  BatchReader(const Config& config, const TrainingData& data, const SequencePlace& place, int dataIndex,
              const BatchViews& views, MemorySpace& memory);

  /// Fills the views, unless they hold that micro-batch already. Errors: Failure dataError.
  void read(std::int64_t step, std::int64_t microBatch);
  /// The same from other data, whose sequences are taken in their order: global batch `batch`, counted from 0.
  void readInOrder(const TokenFile& data, std::int64_t batch, std::int64_t microBatch);
  /// Targets that the views hold and that are counted.
  std::int64_t realTokens() const;

 private:
  /// A micro-batch of the data: `of` tells its global batches apart.
  struct Held {
    const void* data = nullptr;
    std::int64_t of = 0, microBatch = -1;
    bool operator==(const Held&) const = default;
  };
  /// readAt(place, row): reads the sequence at a place of the global batch as one row of the micro-batch.
  template <typename ReadAt>
  void fill(const Held& wanted, const ReadAt& readAt);
  void readSequence(const TokenFile& data, std::int64_t sequence, std::int64_t row);
  const SequencePart& turned() const { return turnsInAttention_ ? attention_ : own_; }
  View prepared(const View& view, std::int64_t elements);
  void upload(const View& from, const View& to, std::int64_t elements);

  const Config& config_;
  const TrainingData& data_;
  const SequencePart own_, attention_;
  const bool turnsInAttention_;  ///< positions are those of the rows inside attention
  const int dataIndex_;
  MemorySpace& memory_;
  std::vector<std::vector<std::int32_t>> staging_;  ///< one for each view that the program cannot read
  const BatchViews target_;
  BatchViews views_;  ///< that the program writes to
  Held held_;         ///< what the views hold
};

}  // namespace internevo::trainer
