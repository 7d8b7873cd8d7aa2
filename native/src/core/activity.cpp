#include "internevo/activity.h"

#include <algorithm>
#include <chrono>

namespace internevo {

const char* activityLaneName(ActivityLane lane) noexcept {
  return lane == ActivityLane::compute         ? "compute"
         : lane == ActivityLane::communication ? "communication"
         : lane == ActivityLane::activations   ? "activation communication"
                                               : "exposed communication";
}

std::int64_t steadyNanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Activity::Activity(std::int64_t capacity)
    : events_(static_cast<std::size_t>(std::max<std::int64_t>(capacity, 0))) {}

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
                       std::int32_t microBatch, bool exposed, DeviceCounters counters)
    : activity_(activity), before_(activity.present(lane)), counters_(counters) {
  event_ = {name, lane, exposed, unit, microBatch, steadyNanoseconds(), 0};
  activity_.set(lane, {name, unit, microBatch, event_.startNanoseconds});
  if (activity_.timedByDevice(lane)) begin_ = activity_.mark();
}

Activity::Scope::~Scope() {
  event_.endNanoseconds = steadyNanoseconds();
  activity_.set(event_.lane, before_);
  const std::int64_t length = event_.endNanoseconds - event_.startNanoseconds;
  std::int64_t longest = activity_.longest_.load(std::memory_order_relaxed);
  while (length > longest &&
         !activity_.longest_.compare_exchange_weak(longest, length, std::memory_order_relaxed)) {
  }
  activity_.finished_.fetch_add(1, std::memory_order_relaxed);
  std::int64_t place = -1;
  if (activity_.recording_.load(std::memory_order_relaxed)) {
    place = activity_.next_.fetch_add(1, std::memory_order_acq_rel);
    if (place < static_cast<std::int64_t>(activity_.events_.size())) {
      activity_.events_[static_cast<std::size_t>(place)] = event_;
    } else {
      place = -1;
    }
  }
  if (begin_ < 0) return;
  if (const std::int64_t end = activity_.mark(); end >= 0)
    activity_.spans_.push_back({begin_, end, place, event_.lane, counters_});
}

Status Activity::timeBy(Moments* device) {
  device_ = device;
  spans_.clear();
  deviceStatus_ = device == nullptr ? Status::success() : device->reset();
  return deviceStatus_;
}

/// An operation for which there is no moment keeps the host's time, and counts for nothing.
std::int64_t Activity::mark() {
  std::int64_t moment = -1;
  if (deviceStatus_.ok()) deviceStatus_ = device_->mark(&moment);
  return moment;
}

Status Activity::settle(double* besideSeconds) {
  if (device_ == nullptr) return Status::success();
  INTERNEVO_RETURN_IF_ERROR(deviceStatus_);
  for (const Span& span : spans_) {
    std::int64_t begin = 0, end = 0;
    INTERNEVO_RETURN_IF_ERROR(device_->read(span.begin, &begin));
    INTERNEVO_RETURN_IF_ERROR(device_->read(span.end, &end));
    const double seconds = 1e-9 * static_cast<double>(end - begin);
    if (span.counters.first != nullptr) *span.counters.first += seconds;
    if (span.counters.second != nullptr) *span.counters.second += seconds;
    if (isBeside(span.lane)) *besideSeconds += seconds;
    if (span.place < 0) continue;
    ActivityEvent& event = events_[static_cast<std::size_t>(span.place)];
    event.startNanoseconds = begin, event.endNanoseconds = end;
  }
  spans_.clear();
  return deviceStatus_ = device_->reset();
}

}  // namespace internevo
