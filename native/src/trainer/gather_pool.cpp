#include "trainer/gather_pool.h"

#include <algorithm>
#include <string>

namespace internevo::trainer {

GatherPool::GatherPool(const Layout& layout, std::vector<GatherGroup> schedule, int slots, View memory, View parameters,
                       Communicator& shards, GroupSet& groups, CommunicationLane& lane)
    : layout_(layout),
      schedule_(std::move(schedule)),
      memory_(memory),
      parameters_(parameters),
      slotElements_(gatherSlotElements(schedule_, layout)),
      shards_(shards),
      groups_(groups),
      lane_(lane),
      slots_(static_cast<std::size_t>(slots)) {}

void GatherPool::refuse(int unit, const char* what) const {
  throw Failure(StatusCode::internal, "the gathered parameters of unit " + std::to_string(unit) + " (" +
                                          layout_.unit(unit).name + ") " + what);
}

int GatherPool::placeOf(std::int64_t group, int unit) const {
  const auto& units = groupAt(group).units;
  const auto found = std::find(units.begin(), units.end(), unit);
  return found == units.end() ? -1 : static_cast<int>(found - units.begin());
}

View GatherPool::target(std::int64_t group, int place) const {
  std::int64_t at = static_cast<std::int64_t>(static_cast<std::size_t>(group) % slots_.size()) * slotElements_;
  for (int i = 0; i < place; ++i) at += layout_.unit(groupAt(group).units[static_cast<std::size_t>(i)]).paddedElements;
  return memory_.offset(at);
}

/// Runs on the lane. It reads what does not change while its slot is not free.
Status GatherPool::gather(int group, int place) {
  const GatherGroup& which = groupAt(group);
  const int unit = which.units[static_cast<std::size_t>(place)];
  const Activity::Scope scope(*groups_.activity, lane_.activityLane(), "all-gather parameters", unit, which.microBatch,
                              !lane_.overlapped());
  return shards_.allGather(parameters_.offset(layout_.unitStart(unit) / shards_.size()), target(group, place),
                           layout_.parameterShard(unit));
}

void GatherPool::launch(std::int64_t group) {
  Slot& slot = slotOf(group);
  const auto& units = groupAt(group).units;
  if (slot.group >= 0) refuse(units.front(), "were to be gathered into a slot that is in use");
  slot.group = group, slot.version = version_;
  for (std::size_t place = 0; place < units.size(); ++place) {
    const int which = static_cast<int>(group);
    const auto at = static_cast<int>(place);
    struct Job {  // a pointer and two numbers: the queue has room for no more
      GatherPool* pool;
      int group, place;
      Status operator()() const { return pool->gather(group, place); }
    };
    slot.tickets[place] = lane_.submit("all-gather parameters", units[place], Job{this, which, at});
  }
}

void GatherPool::beginStep() {
  for (const Slot& slot : slots_) {
    if (slot.group >= 0) refuse(groupAt(slot.group).units.front(), "are still held from the step before");
  }
  current_ = -1, taken_ = released_ = 0;
  if (!schedule_.empty() && schedule_.front().ahead) launch(0);
}

/// Goes on to the next group of the schedule, which must have the unit.
void GatherPool::enter(int unit) {
  const std::int64_t next = current_ + 1, count = static_cast<std::int64_t>(schedule_.size());
  if (current_ >= 0 && slotOf(current_).group == current_) refuse(unit, "were asked for while the group before is in use");
  if (next == count || placeOf(next, unit) < 0) refuse(unit, "were asked for out of turn");
  if (slotOf(next).group != next) launch(next);
  current_ = next, taken_ = released_ = 0;
  if (next + 1 < count && groupAt(next + 1).ahead && slots_.size() > 1) launch(next + 1);
}

ConstView GatherPool::get(int unit) {
  const bool held = current_ >= 0 && slotOf(current_).group == current_ && placeOf(current_, unit) >= 0;
  if (!held) enter(unit);
  const int place = placeOf(current_, unit);
  const Slot& slot = slotOf(current_);
  if ((released_ >> place & 1u) != 0) refuse(unit, "were asked for after they had been given back");
  if (slot.version != version_) refuse(unit, "are older than the weights");
  lane_.wait(slot.tickets[static_cast<std::size_t>(place)], "wait for all-gather of parameters", unit);
  taken_ |= 1u << place;
  return target(current_, place);
}

void GatherPool::release(int unit) {
  const int place = current_ < 0 || slotOf(current_).group != current_ ? -1 : placeOf(current_, unit);
  if (place < 0 || (taken_ >> place & 1u) == 0) refuse(unit, "were given back without having been taken");
  if ((released_ >> place & 1u) != 0) refuse(unit, "were given back twice");
  released_ |= 1u << place;
  if (released_ + 1u == 1u << groupAt(current_).units.size()) slotOf(current_).group = -1;
}

void GatherPool::endStep() {
  const bool last = current_ + 1 == static_cast<std::int64_t>(schedule_.size());
  if (last && (current_ < 0 || slotOf(current_).group < 0)) return;
  refuse(groupAt(std::max<std::int64_t>(current_, 0)).units.front(), "were not the last of the step");
}

}  // namespace internevo::trainer
