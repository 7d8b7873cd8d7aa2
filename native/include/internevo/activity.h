// What a rank is doing now, and what it did: read by the watchdog, and written out as a timeline.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "internevo/moments.h"
#include "internevo/status.h"

namespace internevo {

/// `communication` is the lane of parameters and gradients that runs beside the computing thread, `activations` that of tensor
/// parallelism's activations; `exposed` is what the computing thread itself communicates or waits for.
enum class ActivityLane : std::uint8_t { compute, communication, exposed, activations };
constexpr int kActivityLanes = 4;
/// Whether it runs beside the computing thread.
constexpr bool isBeside(ActivityLane lane) {
  return lane == ActivityLane::communication || lane == ActivityLane::activations;
}
const char* activityLaneName(ActivityLane lane) noexcept;

/// Seconds of the steady clock, in nanoseconds.
std::int64_t steadyNanoseconds() noexcept;

/// One operation of a lane. `name` is a literal. `unit` and `microBatch` are −1 where they do not apply.
struct ActivityEvent {
  const char* name = nullptr;
  ActivityLane lane = ActivityLane::compute;
  bool exposed = false;  ///< communication that the computing thread waited in
  std::int32_t unit = -1, microBatch = -1;
  std::int64_t startNanoseconds = 0, endNanoseconds = 0;
};

/// The operation that a lane is in; `name` null when it is in none.
struct PresentActivity {
  const char* name = nullptr;
  std::int32_t unit = -1, microBatch = -1;
  std::int64_t startNanoseconds = 0;
};

/// Seconds that an operation's time is added to where a device's clock has it, once that is known (Activity::settle).
struct DeviceCounters {
  double* first = nullptr;
  double* second = nullptr;
};

/// Any thread may enter operations and ask for the present ones. Nothing is allocated after construction.
class Activity {
 public:
  /// Room for `capacity` events of the timeline; 0: only the present operations are known.
  explicit Activity(std::int64_t capacity);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  /// From its construction to its end, the lane is in the operation; then in the one it was in before.
  class Scope {
   public:
    Scope(Activity& activity, ActivityLane lane, const char* name, std::int32_t unit = -1,
          std::int32_t microBatch = -1, bool exposed = false, DeviceCounters counters = {});
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity& activity_;
    ActivityEvent event_;
    PresentActivity before_;
    const DeviceCounters counters_;
    std::int64_t begin_ = -1;  ///< moment of the device
  };

  /// From here on what happens on a device is timed by its clock: communication always, computing while it is recorded. Operations
  /// are then entered by one thread, at the lane that they are of. Null: by the host's clock again. It outlives that.
  /// Errors: of the clock.
  Status timeBy(Moments* device);
  bool onDevice() const { return device_ != nullptr; }
  /// Waits until the device has come to the end of all operations since the last time; counters and recorded events get their times.
  /// Adds what the lane beside the computing thread took to *besideSeconds. Without a device's clock: nothing to do.
  Status settle(double* besideSeconds);

  void beginStep(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }
  /// Read while another thread may be changing it: name and start may then belong to neighbouring operations.
  PresentActivity present(ActivityLane lane) const;
  /// Operations that ended, of all lanes: standing still means no progress.
  std::int64_t finished() const { return finished_.load(std::memory_order_relaxed); }
  std::int64_t longestNanoseconds() const { return longest_.load(std::memory_order_relaxed); }

  void record(bool on) { recording_.store(on, std::memory_order_relaxed); }
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  /// Events recorded, in order of their end. Call when no lane is in an operation.
  const ActivityEvent* events() const { return events_.data(); }
  std::int64_t eventCount() const;
  /// Events for which there was no room.
  std::int64_t dropped() const;

 private:
  struct Present {
    std::atomic<const char*> name{nullptr};
    std::atomic<std::int32_t> unit{-1}, microBatch{-1};
    std::atomic<std::int64_t> start{0};
  };
  /// An operation whose time the device's clock has.
  struct Span {
    std::int64_t begin, end;  ///< moments
    std::int64_t place;       ///< of its event; −1: it was not recorded
    ActivityLane lane;
    DeviceCounters counters;
  };
  void set(ActivityLane lane, const PresentActivity& present);
  bool timedByDevice(ActivityLane lane) const {
    return device_ != nullptr &&
           (lane != ActivityLane::compute || recording_.load(std::memory_order_relaxed));
  }
  std::int64_t mark();

  Present present_[kActivityLanes];
  std::atomic<std::int64_t> step_{0}, finished_{0}, longest_{0}, next_{0};
  std::atomic<bool> recording_{false};
  std::vector<ActivityEvent> events_;
  Moments* device_ = nullptr;
  Status deviceStatus_;
  std::vector<Span> spans_;
};

}  // namespace internevo
