// A rank's shards of parameters, gradients and optimizer states, and the collectives that make whole units of them.
#pragma once

#include <functional>

#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/groups.h"
#include "trainer/layout.h"
#include "trainer/memory_plan.h"

namespace internevo::trainer {

/// View of a planned piece. Errors: Failure outOfMemory when the plan and the arena disagree.
View viewOf(Arena& arena, const Piece& piece, DataType type);

/// Order of a step: beginStep; per micro-batch gather / gradient / reduce by unit; finishGradients; update.
/// Errors of every call: Failure communicationError.
class ParameterStore {
 public:
  ParameterStore(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena, Backend& backend,
                 GroupSet& groups);

  /// Weights from the seed, the same under every plan; moments zero.
  void initialize();

  /// All parameters of a unit [paddedElements]; valid until the next gather.
  ConstView gather(int unit);
  /// Where the unit's gradient [paddedElements], float32, is accumulated. With sharded parameters or gradients it is
  /// the one staging block, zeroed here; reduce() must follow before the next unit's.
  View gradient(int unit);
  /// The unit's gradient of this micro-batch is complete.
  void reduce(int unit);

  void beginStep();
  /// Sums the gradients over the replicas where that has not been done. Afterwards each rank holds the summed gradient
  /// of its optimizer shard, also over the tensor ranks and stages that hold the same slice; the squares of each logical
  /// element are added to *squares by exactly one rank.
  void finishGradients(ExactSum* squares);
  /// AdamW on this rank's shard (matrices with weight decay, gains without), then all-gather of what was updated.
  void update(const AdamwSettings& settings);
  /// All-gather of the parameters inside the optimizer-state group, as after an update.
  void shareParameters();

  /// This rank's optimizer shard of a unit [optimizerShard elements], float32: the weights that the optimizer
  /// updates (the parameters themselves in fp32), its moments, and the summed gradient after finishGradients.
  View weights(int unit);
  View firstMoment(int unit) const { return ownedPart(firstMoment_, unit); }
  View secondMoment(int unit) const { return ownedPart(secondMoment_, unit); }
  View summedGradient(int unit);
  /// First element of the optimizer shard inside its unit.
  std::int64_t shardStart(int unit) const;
  /// Copies the weights into the parameters (bf16: rounded) after they were loaded.
  void weightsLoaded();

  const Layout& layout() const { return layout_; }

 private:
  bool staged() const { return plan_.parameterSharding > 1 || plan_.gradientSharding > 1; }
  View parameterShard(int unit) const;  ///< this rank's ps shard
  View ownedParameters(int unit) const; ///< the optimizer shard's part of it
  View ownedPart(View whole, int unit) const;
  View gradientShard(int unit) const;
  /// shard [U/ps] -> its optimizer part, summed over all replicas; returns that part, inside `shard`.
  View sumOverReplicas(View shard, int unit);
  /// Sums the gradients of what other positions hold too.
  void sumOverPositions(int unit);
  void addSquares(int unit, ExactSum* squares);
  /// Calls body(tensor, first, last) for the part of every tensor in this rank's optimizer shard, elements of the unit.
  void forOwnedParts(int unit, const std::function<void(const LogicalTensor&, std::int64_t, std::int64_t)>& body) const;
  void communicate(const std::function<Status()>& call);

  const PlanConfig plan_;
  const Layout& layout_;
  Backend& backend_;
  GroupSet& groups_;
  const std::uint64_t seed_;
  View parameters_, gradients_, firstMoment_, secondMoment_, master_, pool_, unitGradient_;
  std::int64_t gradientBytes_ = 0;
  Workspace reduceWorkspace_;
};

}  // namespace internevo::trainer
