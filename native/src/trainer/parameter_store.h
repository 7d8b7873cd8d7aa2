// A rank's shards of parameters, gradients and optimizer states, and the collectives that make whole units of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/gather_pool.h"
#include "trainer/groups.h"
#include "trainer/layout.h"
#include "trainer/memory_plan.h"
#include "trainer/ring_plan.h"

namespace internevo::trainer {

/// View of a planned piece. Errors: Failure outOfMemory when the plan and the arena disagree.
View viewOf(Arena& arena, const Piece& piece, DataType type);

/// Order of a step: beginStep; per micro-batch get / release and gradient / reduce by unit, as the gather schedule has them;
/// endPasses; finishGradients; update. With overlap the collectives run beside the computing thread, in the same order and
/// with the same arithmetic.
/// Errors of every call: Failure communicationError, internal (used against the schedule).
class ParameterStore {
 public:
  ParameterStore(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena,
                 Backend& backend, GroupSet& groups);

  /// Weights from the seed, the same under every plan; moments zero.
  void initialize();

  /// All parameters of a unit [paddedElements]; valid until its release. See GatherPool.
  ConstView get(int unit);
  void release(int unit);
  /// Where the unit's gradient [paddedElements] is accumulated, in the run's type of gradients. With sharded parameters or
  /// gradients that is its place in the staging, zeroed here once its former content is away; reduce() of all units of the group
  /// must follow before the next group's.
  View gradient(int unit);
  /// The unit's gradient of this micro-batch is complete.
  void reduce(int unit);

  void beginStep();
  /// All micro-batches have gone through.
  void endPasses();

  /// Between two steps. Until endEvaluation, every batch is beginBatch, get / release as the gather schedule of evaluation has
  /// them, endBatch. It is in the pool's memory: what an update gathered ahead for the next step is gathered again by that.
  void beginEvaluation();
  void beginBatch();
  void endBatch();
  void endEvaluation() { evaluating_ = false; }
  /// Sums the gradients over the replicas where that has not been done. Afterwards each rank holds the summed gradient
  /// of its optimizer shard, also over the tensor ranks and stages that hold the same slice; the squares of each logical
  /// element are added to *squares by exactly one rank.
  void finishGradients(ExactSum* squares);
  /// AdamW on this rank's shard (matrices with weight decay, gains without), and all-gather of what was updated. With overlap
  /// the gathers, and the first ones of the next step, go on after the call; get() waits for what it needs.
  void update(const AdamwSettings& settings);
  /// Waits for what an update left under way: before the lane's activity is written out, and at the end of a run.
  void settle();
  /// All-gather of the parameters inside the optimizer-state group, as after an update.
  void shareParameters();

  /// This rank's optimizer shard of a unit [optimizerShard elements], float32: the weights that the optimizer
  /// updates (the parameters themselves in fp32), its moments; and, in the run's type of gradients, the summed gradient after
  /// finishGradients.
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
  /// Groups of the gradient schedule, each of which has its place in the staging: memory of one group, or of two as a ring.
  struct Staging {
    View memory;
    std::vector<UnitRange> groups;
    std::vector<RingPlace> places;
    std::vector<Lane::Ticket> tickets;  ///< of the last reduction that reads a group
    std::int64_t current = -1;          ///< the group in use, or that was last
    bool open = false;                  ///< it is in use
    unsigned reduced = 0;               ///< its units that are complete, by place
  };
  enum class Work : std::int8_t { reduceMicroBatch, sumOverReplicas, sumAllOverReplicas, shareParameters };
  /// A job of the lane: as small as the lane's queue wants it. `group`: of the gradient schedule.
  struct Job {
    ParameterStore* store;
    std::int32_t work : 4, unit : 28, group;
    Status operator()() const { return store->communicate(static_cast<Work>(work), group, unit); }
  };
  Status communicate(Work work, std::int64_t group, int unit);
  Status reduceMicroBatch(std::int64_t group, int unit);
  Lane::Ticket submit(Work work, const char* name, int unit, std::int64_t group = 0);

  /// The ranges that collectives go over again and again are announced to a device's library.
  void announceBuffers(const MemoryPlan& plan);
  static Staging planStaging(const PlanConfig& plan, const Layout& layout, View memory);
  std::vector<GatherGroup> planGathers() const;
  GatherPool& pool() { return evaluating_ ? *evaluationPool_ : pool_; }
  void weightsChanged();
  bool staged() const { return plan_.parameterSharding > 1 || plan_.gradientSharding > 1; }
  bool reducesBeside() const { return plan_.backwardOverlap != BackwardOverlap::none; }
  View parameterShard(int unit) const;   ///< this rank's ps shard
  View ownedParameters(int unit) const;  ///< the optimizer shard's part of it
  View ownedPart(View whole, int unit) const;
  View gradientShard(int unit) const;
  View stagingOf(std::int64_t group, int unit) const;
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
  std::vector<Announcement> announcements_;  ///< go last, before the arena
  View parameters_, gradients_, firstMoment_, secondMoment_, master_;
  std::int64_t gradientBytes_ = 0;
  Workspace reduceWorkspace_, laneWorkspace_;
  Staging staging_;
  std::vector<std::int64_t> contributions_;  ///< to the gradient of each unit, in this step
  std::vector<Lane::Ticket>
      shared_;                ///< of the gather of each unit's updated parameters, until it was waited for
  std::vector<bool> summed_;  ///< the once-a-step reduction of a unit is on the lane
  GatherPool pool_;
  std::optional<GatherPool> evaluationPool_;  ///< in the same memory, where the run evaluates
  bool evaluating_ = false;
  CommunicationLane lane_;  ///< ends first: its jobs use what is above
};

}  // namespace internevo::trainer
