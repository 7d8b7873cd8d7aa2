// The watchdog of a run: names the rank that is lost, once, and ends the job.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "trainer/config.h"
#include "trainer/failure.h"
#include "trainer/watchdog.h"

namespace internevo::trainer {

/// Ends every rank of the job at once with this exit code; does not return.
using Abandon = std::function<void(int exitCode)>;

class RunWatch {
 public:
  /// Collective over MPI_COMM_WORLD. Starts watching when the configuration asks for it and there are several ranks. Ranks
  /// that cannot reach one another by TCP go on without, and say so on standard error.
  RunWatch(const Config& config, int rank, const Activity& activity, Abandon abandon);

  /// Called before the job is ended because of a lost rank or an error, by the thread that ends it: lets go of what waits for
  /// other ranks, so that a device is not left with work that never ends. The job waits a few seconds for it at most.
  void beforeTheEnd(std::function<void()> release);

  /// Host and stage of a rank.
  const RankIdentity& identity(int rank) const { return identities_[static_cast<std::size_t>(rank)]; }
  /// Whether all ranks are on one host.
  bool sameHost() const;
  /// Says goodbye: what this rank does from now on is its own affair.
  void end();
  /// An error that only this rank knows of: it is written, once, and the job ends. When messages failed, the rank that was
  /// lost is the cause and is given the time to be found. Does not return.
  [[noreturn]] void fail(const Problem& problem);

 private:
  void shareIdentities(const Config& config);
  void start(const WatchdogLimits& limits, const Activity& activity);
  void lost(const LostRank& lost);
  void release();

  const int rank_;
  const Abandon abandon_;
  double verdictSeconds_ = 0;  ///< within which a lost rank is found
  std::vector<RankIdentity> identities_;
  std::mutex mutex_;  ///< of release_
  std::function<void()> release_;
  std::atomic<bool> told_{false};  ///< this process has written its error
  std::unique_ptr<WatchdogHub> hub_;
  std::unique_ptr<WatchdogMember> member_;
};

}  // namespace internevo::trainer
