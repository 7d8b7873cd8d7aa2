// The pinned pool of gathered parameters (paper, appendix "Defragmentation": Pinned Communication Buffer): one slot, or two
// that take turns, so that the next group is gathered into one while the other is computed with.
//
// Each slot is tagged with the group that it holds and the version of the weights. get and release follow the schedule; what
// does not (a unit out of turn, one that was not gathered or is given back twice, weights that changed meanwhile) is an
// error and not a wrong result.
#pragma once

#include <array>
#include <vector>

#include "trainer/communication_lane.h"
#include "trainer/gather_schedule.h"

namespace internevo::trainer {

/// Errors of every call: Failure internal (used against the schedule), communicationError.
class GatherPool {
 public:
  static constexpr int kSlots = 2, kUnits = 4;

  /// memory: `slots` times gatherSlotElements. `parameters` is where the shards [U/ps] of all units stand.
  GatherPool(const Layout& layout, std::vector<GatherGroup> schedule, int slots, View memory, View parameters,
             Communicator& shards, GroupSet& groups, CommunicationLane& lane);

  /// The first group of the step is gathered from here on, where it may go ahead.
  void beginStep();
  /// All parameters of a unit [paddedElements], valid until its release. The first get of a group waits for it and starts
  /// the next one; more gets of a unit before its release give the same.
  ConstView get(int unit);
  void release(int unit);
  /// Every group of the schedule has been used and given back.
  void endStep();
  /// What was gathered before holds no longer.
  void weightsChanged() { ++version_; }

  std::int64_t version() const { return version_; }

 private:
  struct Slot {
    std::int64_t group = -1;  ///< in the schedule; −1: free
    std::int64_t version = 0;
    std::array<Lane::Ticket, kUnits> tickets{};
  };
  Slot& slotOf(std::int64_t group) { return slots_[static_cast<std::size_t>(group) % slots_.size()]; }
  const GatherGroup& groupAt(std::int64_t group) const { return schedule_[static_cast<std::size_t>(group)]; }
  int placeOf(std::int64_t group, int unit) const;
  View target(std::int64_t group, int place) const;
  void launch(std::int64_t group);
  void enter(int unit);
  Status gather(int group, int place);
  [[noreturn]] void refuse(int unit, const char* what) const;

  const Layout& layout_;
  const std::vector<GatherGroup> schedule_;
  const View memory_, parameters_;
  const std::int64_t slotElements_;
  Communicator& shards_;
  GroupSet& groups_;
  CommunicationLane& lane_;
  std::vector<Slot> slots_;
  std::int64_t current_ = -1, version_ = 0;
  unsigned taken_ = 0, released_ = 0;  ///< units of the current group, by place
};

}  // namespace internevo::trainer
