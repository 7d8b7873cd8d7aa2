// Context parallelism: attention of one sequence over an ordered group of ranks, keys and values passed around the ring
// (Ring Attention, Liu, Zaharia, Abbeel 2023), in the zigzag layout that gives every rank the same causal work.
#pragma once

#include <array>
#include <optional>

#include "comm/ring_exchange.h"
#include "internevo/activity.h"
#include "internevo/backend.h"

namespace internevo {

/// Zigzag: a sequence is cut into 2·groupSize chunks, and rank i holds chunks i and 2·groupSize − 1 − i, in this order.
/// half 0 or 1: which of the two.
constexpr int zigzagChunk(int groupSize, int rank, int half) {
  return half == 0 ? rank : 2 * groupSize - 1 - rank;
}
/// Position in the sequence of a rank's row, row in [0, sequence / groupSize).
constexpr std::int64_t zigzagPosition(std::int64_t sequence, int groupSize, int rank, std::int64_t row) {
  const std::int64_t chunk = sequence / (2 * groupSize);
  const int half = row < chunk ? 0 : 1;
  return zigzagChunk(groupSize, rank, half) * chunk + row - half * chunk;
}

/// Which half of the rank's queries meets which half of a block of keys.
struct RingPair {
  int query = 0, key = 0;
  bool diagonal = false;  ///< the same chunk: half of the work of another pair
};
struct RingPairs {
  std::array<RingPair, 4> pairs{};
  int count = 0;
};
/// The pairs that rank `rank` computes against the block of rank `owner`; those wholly in the future are left out.
RingPairs ringPairs(int groupSize, int rank, int owner);

/// Sizes of a rank's share: rows = sequence / groupSize of each of the batch's sequences, in zigzag order.
struct RingAttentionShape {
  DataType type = DataType::float32;  ///< of q, k, v, o and their gradients
  std::int64_t batch = 0;
  std::int64_t sequence = 0;  ///< of all ranks together
  std::int64_t heads = 0, kvHeads = 0, headSize = 0;
  /// Row strides as in AttentionShape; 0 = dense.
  std::int64_t queryStride = 0, keyStride = 0, valueStride = 0, outputStride = 0;
  std::int64_t window = 0;  ///< as in AttentionShape
};

class RingAttention {
 public:
  /// Bytes of staging. With R = batch·sequence/groupSize, β bytes of an element, al() up to a multiple of 64:
  ///     2 · al(β·R·2·kvHeads·headSize)                      keys and values: the block in use, the next one
  ///   + 3 · al(4·R·2·kvHeads·headSize)                      their gradients: being summed, being sent, arriving
  ///   + (β = 4 ? 0 : al(4·R·heads·headSize))                o, or gQ, in float32
  /// 0 when the shape does not fit the group.
  static std::int64_t stagingBytes(const RingAttentionShape&, int groupSize);
  /// Scratch of a chunk of queries against a chunk of keys; 0 when the shape does not fit the group.
  static std::int64_t scratchBytes(const RingAttentionShape&, int groupSize, const BackendSizes&);

  /// Everything given outlives the object. `lane` may be null (see RingExchange).
  /// Errors of every later call: badConfig when sequence does not divide by 2·groupSize, or staging or scratch is short.
  RingAttention(Backend& backend, const Communicator& group, const RingAttentionShape& shape,
                Workspace staging, Workspace scratch, Lane* lane);
  /// Tells the activity when the caller waits for the ring. Both outlive the object.
  void setActivity(Activity& activity, const std::int32_t& microBatch, DeviceCounters counters) {
    activity_ = &activity, microBatch_ = &microBatch, counters_ = counters;
  }

  /// q [R, heads, headSize], k, v [R, kvHeads, headSize], rotated by their positions in the sequence already;
  /// firstKeys int32 [R] as in AttentionShape (positions in the whole sequence), or empty. Writes o [R, heads, headSize]
  /// and logSumExp float32 [batch, heads, rows]. Collective.
  Status forward(ConstView q, ConstView k, ConstView v, ConstView firstKeys, View o, View logSumExp);
  /// gQ, gK, gV are overwritten and may not alias q, k, v. Collective. The gradient of a block of keys is summed in
  /// float32 in the order of the ring, beginning with its owner: the bits depend on the group's size only.
  Status backward(ConstView q, ConstView k, ConstView v, ConstView o, ConstView logSumExp, ConstView gO,
                  ConstView firstKeys, View gQ, View gK, View gV);

  /// Work of all calls so far, in halves of a pair: 1 for a pair on the diagonal, 2 for another.
  std::int64_t computedHalves() const { return computedHalves_; }
  /// Seconds of all calls so far in which the caller began exchanges or waited for them.
  double exchangeSeconds() const { return exchangeSeconds_; }

 private:
  Status check(ConstView query, ConstView firstKeys) const;
  AttentionBlockShape pairShape(const RingPair& pair, int owner, ConstView firstKeys) const;
  Status packKeysAndValues(ConstView k, ConstView v);
  void enter(std::optional<Activity::Scope>* scope);
  Status begin(RingExchange& exchange, const void* out, void* in, std::int64_t bytes);
  Status finish(RingExchange& exchange);
  Status forwardPairs(int step, ConstView q, ConstView firstKeys, View o32, std::int64_t outputStride,
                      View logSumExp);
  Status backwardPairs(int step, ConstView q, ConstView o, ConstView logSumExp, ConstView gO,
                       ConstView firstKeys, View gQ32, std::int64_t gradientStride);
  int owner(int step) const { return (group_.index() - step + group_.size()) % group_.size(); }
  ConstView keysOf(int step) const { return {buffers_[step % 2], shape_.type}; }

  Backend& backend_;
  const Communicator& group_;
  RingAttentionShape shape_;
  std::int64_t stagingGiven_, scratchGiven_;
  std::int64_t rows_ = 0, chunk_ = 0;           // of one sequence on this rank; of a chunk
  std::int64_t queryWidth_ = 0, keyWidth_ = 0;  // elements of a row of q, of k
  std::int64_t keyElements_ = 0;                // of k of this rank: where v begins in a block
  std::byte* buffers_[2] = {};
  float* gradients_[3] = {};
  float* wide_ = nullptr;
  Workspace attentionWorkspace_;
  RingExchange keyExchange_, gradientExchange_;
  std::int64_t computedHalves_ = 0;
  double exchangeSeconds_ = 0;
  Activity* activity_ = nullptr;
  const std::int32_t* microBatch_ = nullptr;
  DeviceCounters counters_;
};

}  // namespace internevo
