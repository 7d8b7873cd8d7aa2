#include "trainer/gather_pool.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace internevo::trainer {

GatherPool::GatherPool(const Layout& layout, std::vector<GatherGroup> schedule, int slots, View memory,
                       View parameters, Communicator& shards, GroupSet& groups, CommunicationLane& lane)
    : layout_(layout),
      schedule_(std::move(schedule)),
      memory_(memory),
      parameters_(parameters),
      shards_(shards),
      groups_(groups),
      lane_(lane),
      states_(schedule_.size()),
      updatedUnits_(layout.unitCount()) {
  std::vector<std::int64_t> sizes;
  for (const GatherGroup& group : schedule_) sizes.push_back(elementsOf(group, layout_));
  places_ = planRing(sizes, slots * gatherSlotElements(schedule_, layout_));
}

void GatherPool::refuse(int unit, const char* what) const {
  throw Failure(StatusCode::internal, "the gathered parameters of unit " + std::to_string(unit) + " (" +
                                          layout_.unit(unit).name + ") " + what);
}

int GatherPool::placeOf(std::int64_t group, int unit) const {
  const auto& units = groupAt(group).units;
  const auto found = std::find(units.begin(), units.end(), unit);
  return found == units.end() ? -1 : static_cast<int>(found - units.begin());
}

std::int64_t GatherPool::offsetOf(std::int64_t group, int place) const {
  std::int64_t at = places_[static_cast<std::size_t>(group)].offset;
  for (int i = 0; i < place; ++i)
    at += layout_.unit(groupAt(group).units[static_cast<std::size_t>(i)]).paddedElements;
  return at;
}

/// No unit of a group before it that is still held, or yet to be used, stands in the memory of this one.
bool GatherPool::free(std::int64_t group, int place) const {
  const auto elements = [&](std::int64_t of, int at) {
    return layout_.unit(groupAt(of).units[static_cast<std::size_t>(at)]).paddedElements;
  };
  const std::int64_t begin = offsetOf(group, place), end = begin + elements(group, place);
  for (std::int64_t before = oldest_; before < group; ++before) {
    const int units = static_cast<int>(groupAt(before).units.size());
    for (int i = 0; i < units; ++i) {
      if ((states_[static_cast<std::size_t>(before)].released >> i & 1u) != 0) continue;
      const std::int64_t other = offsetOf(before, i);
      if (other < end && begin < other + elements(before, i)) return false;
    }
  }
  return true;
}

/// Runs on the lane. It reads what does not change while its group is not given back.
Status GatherPool::gather(int group, int place) {
  const GatherGroup& which = groupAt(group);
  const int unit = which.units[static_cast<std::size_t>(place)];
  const Activity::Scope scope(*groups_.activity, lane_.activityLane(), "all-gather parameters", unit,
                              which.microBatch, !lane_.overlapped());
  return shards_.allGather(parameters_.offset(layout_.unitStart(unit) / shards_.size()),
                           memory_.offset(offsetOf(group, place)), layout_.parameterShard(unit));
}

void GatherPool::launch(std::int64_t group, int place) {
  Group& state = stateOf(group);
  const int unit = groupAt(group).units[static_cast<std::size_t>(place)], which = static_cast<int>(group);
  if (!free(group, place)) refuse(unit, "were to be gathered where others are in use");
  if (state.launched == 0) state.version = version_;
  state.launched |= 1u << place;
  struct Job {  // a pointer and two numbers: the queue has room for no more
    GatherPool* pool;
    int group, place;
    Status operator()() const { return pool->gather(group, place); }
  };
  state.tickets[static_cast<std::size_t>(place)] =
      lane_.submit("all-gather parameters", unit, Job{this, which, place});
  if (wholly(state.launched, group)) next_ = group + 1;
}

/// In the order of the schedule, what may go ahead and has room, up to the group `last`.
void GatherPool::launchAhead(std::int64_t last) {
  while (next_ <= last && next_ < count() && groupAt(next_).ahead &&
         groupAt(next_).afterReductions <= reductions_) {
    const int place = std::popcount(stateOf(next_).launched);
    if (groupAt(next_).units[static_cast<std::size_t>(place)] >= updatedUnits_ || !free(next_, place)) return;
    launch(next_, place);
  }
}

void GatherPool::restart() {
  std::fill(states_.begin(), states_.end(), Group{});
  current_ = -1, oldest_ = next_ = reductions_ = 0;
}

void GatherPool::beginStep() {
  if (inStep_)
    refuse(groupAt(std::max<std::int64_t>(current_, 0)).units.front(), "are still held from the step before");
  inStep_ = !schedule_.empty();
  updatedUnits_ = layout_.unitCount();
  launchAhead(count());
}

/// Goes on to the next group of the schedule, which must have the unit.
void GatherPool::enter(int unit) {
  const std::int64_t next = current_ + 1;
  if (inUse(current_)) refuse(unit, "were asked for while the group before is in use");
  if (next == count() || placeOf(next, unit) < 0) refuse(unit, "were asked for out of turn");
  const int units = static_cast<int>(groupAt(next).units.size());
  for (int place = std::popcount(stateOf(next).launched); place < units; ++place) launch(next, place);
  current_ = next;
  launchAhead(next + 1);
}

ConstView GatherPool::get(int unit) {
  const bool held = inUse(current_) && placeOf(current_, unit) >= 0;
  if (!held) enter(unit);
  const int place = placeOf(current_, unit);
  Group& state = stateOf(current_);
  if ((state.released >> place & 1u) != 0) refuse(unit, "were asked for after they had been given back");
  if (state.version != version_) refuse(unit, "are older than the weights");
  lane_.wait(std::exchange(state.tickets[static_cast<std::size_t>(place)], 0),
             "wait for all-gather of parameters", unit);
  state.taken |= 1u << place;
  return memory_.offset(offsetOf(current_, place));
}

void GatherPool::release(int unit) {
  const int place = inUse(current_) ? placeOf(current_, unit) : -1;
  if (place < 0 || (stateOf(current_).taken >> place & 1u) == 0)
    refuse(unit, "were given back without having been taken");
  Group& state = stateOf(current_);
  if ((state.released >> place & 1u) != 0) refuse(unit, "were given back twice");
  state.released |= 1u << place;
  if (wholly(state.released, current_)) oldest_ = current_ + 1;
  launchAhead(count());
}

void GatherPool::reduced() {
  ++reductions_;
  launchAhead(count());
}

void GatherPool::endStep() {
  if (current_ + 1 != count() || inUse(current_)) {
    refuse(groupAt(std::max<std::int64_t>(current_, 0)).units.front(), "were not the last of the step");
  }
  inStep_ = false;
  restart();
}

void GatherPool::weightsChanged() {
  ++version_;
  if (inStep_) return;
  updatedUnits_ = 0;
  restart();
}

void GatherPool::forget() {
  if (inStep_)
    refuse(groupAt(std::max<std::int64_t>(current_, 0)).units.front(), "were dropped inside a step");
  restart();
}

void GatherPool::updated(int unit) {
  if (inStep_) refuse(unit, "were updated while the step uses them");
  updatedUnits_ = unit + 1;
  launchAhead(count());
}

}  // namespace internevo::trainer
