// A communication lane: submitted jobs run in order, beside what the computing thread does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "internevo/status.h"

namespace internevo {

/// On the CPU a thread (ThreadLane); on a device a stream, where a job is what it gives to the device.
class Lane {
 public:
  using Ticket = std::int64_t;

  virtual ~Lane() = default;

  /// Queues a job, behind all that the caller has called before; may block while kCapacity jobs are waiting. After a job has
  /// failed, later ones are not run.
  virtual Ticket submit(std::function<Status()> job) = 0;
  /// What the caller calls from here on comes after that job and all before it; the first error of the lane, if any.
  virtual Status wait(Ticket ticket) = 0;
  virtual Status waitAll() = 0;
  /// Seconds that the lane has been busy with jobs; 0 where that is not measured.
  virtual double busySeconds() const = 0;

  static constexpr int kCapacity = 256;
};

/// One thread; waiting for a job blocks the caller.
class ThreadLane final : public Lane {
 public:
  ThreadLane();
  ~ThreadLane() override;  ///< Runs what was submitted, then joins.
  ThreadLane(const ThreadLane&) = delete;
  ThreadLane& operator=(const ThreadLane&) = delete;

  Ticket submit(std::function<Status()> job) override;
  Status wait(Ticket ticket) override;
  Status waitAll() override;
  double busySeconds() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace internevo
