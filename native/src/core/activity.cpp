#include "internevo/activity.h"

#include <algorithm>
#include <chrono>

namespace internevo {

const char* activityLaneName(ActivityLane lane) noexcept {
  return lane == ActivityLane::compute         ? "compute"
         : lane == ActivityLane::communication ? "communication"
                                               : "exposed communication";
}

std::int64_t steadyNanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Activity::Activity(std::int64_t capacity) : events_(static_cast<std::size_t>(std::max<std::int64_t>(capacity, 0))) {}

PresentActivity Activity::present(ActivityLane lane) const {
  const Present& p = present_[static_cast<int>(lane)];
  PresentActivity found;
  found.name = p.name.load(std::memory_order_relaxed);
  found.unit = p.unit.load(std::memory_order_relaxed);
  found.microBatch = p.microBatch.load(std::memory_order_relaxed);
  found.startNanoseconds = p.start.load(std::memory_order_relaxed);
  return found;
}

void Activity::set(ActivityLane lane, const PresentActivity& present) {
  Present& p = present_[static_cast<int>(lane)];
  p.unit.store(present.unit, std::memory_order_relaxed);
  p.microBatch.store(present.microBatch, std::memory_order_relaxed);
  p.start.store(present.startNanoseconds, std::memory_order_relaxed);
  p.name.store(present.name, std::memory_order_relaxed);
}

std::int64_t Activity::eventCount() const {
  return std::min(next_.load(std::memory_order_acquire), static_cast<std::int64_t>(events_.size()));
}

std::int64_t Activity::dropped() const { return next_.load(std::memory_order_acquire) - eventCount(); }

Activity::Scope::Scope(Activity& activity, ActivityLane lane, const char* name, std::int32_t unit,
                       std::int32_t microBatch, bool exposed)
    : activity_(activity), before_(activity.present(lane)) {
  event_ = {name, lane, exposed, unit, microBatch, steadyNanoseconds(), 0};
  activity_.set(lane, {name, unit, microBatch, event_.startNanoseconds});
}

Activity::Scope::~Scope() {
  event_.endNanoseconds = steadyNanoseconds();
  activity_.set(event_.lane, before_);
  const std::int64_t length = event_.endNanoseconds - event_.startNanoseconds;
  std::int64_t longest = activity_.longest_.load(std::memory_order_relaxed);
  while (length > longest && !activity_.longest_.compare_exchange_weak(longest, length, std::memory_order_relaxed)) {
  }
  activity_.finished_.fetch_add(1, std::memory_order_relaxed);
  if (!activity_.recording_.load(std::memory_order_relaxed)) return;
  const std::int64_t place = activity_.next_.fetch_add(1, std::memory_order_acq_rel);
  if (place < static_cast<std::int64_t>(activity_.events_.size())) {
    activity_.events_[static_cast<std::size_t>(place)] = event_;
  }
}

}  // namespace internevo
