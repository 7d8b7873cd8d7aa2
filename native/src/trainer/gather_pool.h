// The pinned pool of gathered parameters (paper, appendix "Defragmentation": Pinned Communication Buffer): memory of one
// group, or of two as a ring in which every group of the schedule has its place, so that the next ones are gathered while one
// is computed with, as far ahead as their places are free.
//
// Each group is tagged with the version of the weights. get and release follow the schedule; what does not (a unit out of
// turn, one that was not gathered or is given back twice, weights that changed meanwhile) is an error and not a wrong result.
#pragma once

#include <array>
#include <vector>

#include "trainer/communication_lane.h"
#include "trainer/gather_schedule.h"
#include "trainer/ring_plan.h"

namespace internevo::trainer {

/// Errors of every call: Failure internal (used against the schedule), communicationError.
///
/// What is submitted when depends on the schedule only, so that all ranks of a group submit in the same order: the next group
/// when one is first used, and whatever else has room, and need not let a reduction pass, when a unit is given back or reduced, or
/// was updated at the end of a step.
class GatherPool {
 public:
  static constexpr int kUnits = 4;

  /// memory: `slots` times gatherSlotElements. `parameters` is where the shards [U/ps] of all units stand.
  GatherPool(const Layout& layout, std::vector<GatherGroup> schedule, int slots, View memory, View parameters,
             Communicator& shards, GroupSet& groups, CommunicationLane& lane);

  /// The first groups of the step are gathered from here on, where they may go ahead.
  void beginStep();
  /// All parameters of a unit [paddedElements], valid until its release. The first get of a group waits for it and starts
  /// the next one; more gets of a unit before its release give the same.
  ConstView get(int unit);
  void release(int unit);
  /// A group of the gradient schedule was submitted to the lane.
  void reduced();
  /// Every group of the schedule has been used and given back.
  void endStep();
  /// What was gathered before holds no longer.
  void weightsChanged();
  /// Between two steps: what was gathered ahead is dropped, and its memory may be used. The caller has waited for the lane.
  void forget();
  /// Between two steps: the weights of the units up to this one are those of the next step, for which they may be gathered.
  void updated(int unit);

  std::int64_t version() const { return version_; }
  View memory() const { return memory_; }

 private:
  struct Group {
    std::array<Lane::Ticket, kUnits> tickets{};
    std::int64_t version = 0;
    unsigned launched = 0, taken = 0, released = 0;  ///< units, by place
  };
  const GatherGroup& groupAt(std::int64_t group) const { return schedule_[static_cast<std::size_t>(group)]; }
  Group& stateOf(std::int64_t group) { return states_[static_cast<std::size_t>(group)]; }
  bool wholly(unsigned units, std::int64_t group) const {
    return units + 1u == 1u << groupAt(group).units.size();
  }
  bool inUse(std::int64_t group) { return group >= 0 && !wholly(stateOf(group).released, group); }
  std::int64_t count() const { return static_cast<std::int64_t>(schedule_.size()); }
  int placeOf(std::int64_t group, int unit) const;
  std::int64_t offsetOf(std::int64_t group, int place) const;
  bool free(std::int64_t group, int place) const;
  void restart();
  void launch(std::int64_t group, int place);
  void launchAhead(std::int64_t last);
  void enter(int unit);
  Status gather(int group, int place);
  [[noreturn]] void refuse(int unit, const char* what) const;

  const Layout& layout_;
  const std::vector<GatherGroup> schedule_;
  const View memory_, parameters_;
  std::vector<RingPlace> places_;
  Communicator& shards_;
  GroupSet& groups_;
  CommunicationLane& lane_;
  std::vector<Group> states_;
  bool inStep_ = false;
  int updatedUnits_;
  std::int64_t current_ = -1, version_ = 0;
  std::int64_t oldest_ = 0;      ///< the first group that is not wholly given back
  std::int64_t next_ = 0;        ///< the first group that is not wholly launched
  std::int64_t reductions_ = 0;  ///< submitted in this step
};

}  // namespace internevo::trainer
