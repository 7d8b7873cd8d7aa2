// Which slices of which logical tensors a rank's optimizer shard holds: what it saves, and what it must load.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "trainer/layout.h"

namespace internevo::trainer {

/// A rank's place in the sharding of its slice of the model.
struct ShardPlace {
  int parameterShard = 0, optimizerShard = 0;
  int replica = 0, replicas = 1;  ///< among the ranks with the same optimizer shard
};

/// A slice of a logical tensor that lies in a unit's optimizer shard, from element `offset` of it.
struct HeldPart {
  std::string tensor;
  Slice slice;
  int unit = 0;
  std::int64_t offset = 0;
};

/// All slices of the optimizer shard: what is loaded. Padding is in none of them.
std::vector<HeldPart> heldParts(const Layout& layout, const ShardPlace& place);

/// What this rank saves: its share of the optimizer shard, of which every replica takes one, without tensors (or rows
/// of them) that another tensor or pipeline rank saves.
std::vector<HeldPart> savedParts(const Layout& layout, const ShardPlace& place);

/// Elements of the largest share of all units together, padding included: 64 · Σ up(U / (64·ps·oss), replicas) /
/// replicas. The staging of a checkpoint has three times as many float32.
std::int64_t savedElementsBound(const Layout& layout, int replicas);

/// Every logical tensor of the model with its whole shape, in the model's order.
std::vector<std::pair<std::string, TensorShape>> logicalTensors(const ModelConfig& model);

}  // namespace internevo::trainer
