// A rank's shards of parameters, gradients and optimizer states, and the collectives that make whole units of them.
#pragma once

#include <cstdint>
#include <vector>

#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/gather_pool.h"
#include "trainer/groups.h"
#include "trainer/layout.h"
#include "trainer/memory_plan.h"

namespace internevo::trainer {

/// View of a planned piece. Errors: Failure outOfMemory when the plan and the arena disagree.
View viewOf(Arena& arena, const Piece& piece, DataType type);

/// Order of a step: beginStep; per micro-batch get / release and gradient / reduce by unit, as the gather schedule has them;
/// endPasses; finishGradients; update. With overlap the collectives run beside the computing thread, in the same order and
/// with the same arithmetic.
/// Errors of every call: Failure communicationError, internal (used against the schedule).
class ParameterStore {
 public:
  ParameterStore(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena, Backend& backend,
                 GroupSet& groups);

  /// Weights from the seed, the same under every plan; moments zero.
  void initialize();

  /// All parameters of a unit [paddedElements]; valid until its release. See GatherPool.
  ConstView get(int unit);
  void release(int unit);
  /// Where the unit's gradient [paddedElements], float32, is accumulated. With sharded parameters or gradients it is a
  /// staging slot, zeroed here once its former content is away; reduce() of all units of the slot must follow before the
  /// next slot's.
  View gradient(int unit);
  /// The unit's gradient of this micro-batch is complete.
  void reduce(int unit);

  void beginStep();
  /// All micro-batches have gone through.
  void endPasses();
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

  /// Seconds that collectives have taken beside the computing thread, since the beginning.
  double hiddenBusySeconds() const { return lane_.busySeconds(); }

 private:
  /// A slot of the gradient staging.
  struct Staging {
    int first = -1;          ///< unit at its beginning
    unsigned reduced = 0;    ///< units that are complete, by place
    Lane::Ticket ticket = 0; ///< of the last reduction that reads it
  };
  enum class Work : std::int16_t { reduceMicroBatch, sumOverReplicas, sumAllOverReplicas, shareParameters };
  /// A job of the lane.
  struct Job {
    ParameterStore* store;
    Work work;
    std::int16_t slot;
    std::int32_t unit;
    Status operator()() const { return store->communicate(work, slot, unit); }
  };
  Status communicate(Work work, int slot, int unit);
  Status reduceMicroBatch(int slot, int unit);
  Lane::Ticket submit(Work work, const char* name, int unit, int slot = 0);

  bool staged() const { return plan_.parameterSharding > 1 || plan_.gradientSharding > 1; }
  bool reducesBeside() const { return plan_.backwardOverlap != BackwardOverlap::none; }
  View parameterShard(int unit) const;  ///< this rank's ps shard
  View ownedParameters(int unit) const; ///< the optimizer shard's part of it
  View ownedPart(View whole, int unit) const;
  View gradientShard(int unit) const;
  View stagingOf(int slot, int unit) const;
  /// shard [U/ps] -> its optimizer part at *part, inside `shard`, summed over all replicas.
  Status sumOverReplicas(View shard, int unit, View* part);
  /// Sums the gradients of what other positions hold too.
  void sumOverPositions(int unit);
  void addSquares(int unit, ExactSum* squares);
  /// Calls body(tensor, first, last) for the part of every tensor in this rank's optimizer shard, elements of the unit.
  template <typename Body>
  void forOwnedParts(int unit, const Body& body) const;

  const PlanConfig plan_;
  const Layout& layout_;
  Backend& backend_;
  GroupSet& groups_;
  const std::uint64_t seed_;
  View parameters_, gradients_, firstMoment_, secondMoment_, master_, staging_;
  std::int64_t gradientBytes_ = 0, stagingElements_ = 0;
  Workspace reduceWorkspace_, laneWorkspace_;
  std::vector<Staging> slots_;
  int slot_ = 0;
  std::vector<std::int64_t> contributions_;  ///< to the gradient of each unit, in this step
  std::vector<bool> summed_;                 ///< the once-a-step reduction of a unit is on the lane
  GatherPool pool_;
  CommunicationLane lane_;                   ///< ends first: its jobs use what is above
};

}  // namespace internevo::trainer
