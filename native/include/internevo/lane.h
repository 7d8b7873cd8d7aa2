// A communication lane: one thread that runs submitted jobs in order, beside the computing thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "internevo/status.h"

namespace internevo {

class Lane {
 public:
  using Ticket = std::int64_t;

  Lane();
  ~Lane();  ///< Runs what was submitted, then joins.
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Queues a job; blocks while kCapacity jobs are waiting. After a job has failed, later ones are not run.
  Ticket submit(std::function<Status()> job);
  /// Blocks until that job and all before it are done; the first error of the lane, if any.
  Status wait(Ticket ticket);
  Status waitAll();
  /// Seconds that the lane's thread has spent inside jobs.
  double busySeconds() const;

  static constexpr int kCapacity = 256;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace internevo
