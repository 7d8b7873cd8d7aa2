// Where collectives of parameters and gradients run: on a lane beside the computing thread when the plan overlaps, else at
// once on the computing thread. Either way in the order in which they are submitted, which is the same on every rank of
// their groups.
#pragma once

#include <memory>
#include <type_traits>

#include "internevo/backend.h"
#include "trainer/failure.h"
#include "trainer/groups.h"

namespace internevo::trainer {

/// The communicators that its jobs use belong to it: while one is waiting or running, no other thread may use them.
class CommunicationLane {
 public:
  CommunicationLane(Backend& backend, GroupSet& groups, bool overlapped) : groups_(groups) {
    if (overlapped) lane_ = backend.createLane();
  }

  bool overlapped() const { return lane_ != nullptr; }

  /// A job is called once and returns a Status. It must be small enough to be queued without memory of its own.
  /// Errors (when it runs at once): Failure of the job.
  template <typename Job>
  Lane::Ticket submit(const char* name, int unit, Job job) {
    static_assert(sizeof(Job) <= 16 && std::is_trivially_copyable_v<Job>, "the queue must not allocate");
    if (lane_) return lane_->submit(job);
    const Exposed exposed(groups_, name, unit);
    require(job());
    return 0;
  }
  /// Errors: Failure of that job or of one before it.
  void wait(Lane::Ticket ticket, const char* name, int unit) {
    if (!lane_ || ticket == 0) return;
    const Exposed exposed(groups_, name, unit, &groups_.exposedCommunicationSeconds,
                          &groups_.laneWaitSeconds);
    require(lane_->wait(ticket));
  }
  void waitAll(const char* name) {
    if (!lane_) return;
    const Exposed exposed(groups_, name, -1, &groups_.exposedCommunicationSeconds, &groups_.laneWaitSeconds);
    require(lane_->waitAll());
  }
  /// Where the activity of a job is told. Without a lane the caller's own scope says all there is to say.
  ActivityLane activityLane() const { return lane_ ? ActivityLane::communication : ActivityLane::exposed; }
  /// Seconds that jobs have taken beside the computing thread, since the beginning.
  double busySeconds() const { return lane_ ? lane_->busySeconds() : 0; }

 private:
  GroupSet& groups_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace internevo::trainer
