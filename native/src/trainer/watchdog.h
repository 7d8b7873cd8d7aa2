// Finds the rank that died, froze or got stuck, and names it: beside MPI, because MPI waits for ever.
//
// Every rank sends a beat over its own TCP connection to rank 0, from a thread that does nothing else, and rank 0 answers.
// - A connection that ends without a goodbye: that rank died.
// - No beat for `silenceSeconds`: that rank's process is frozen (stopped, swapped out, its host is gone).
// - Beats, but no operation ends anywhere for `stallSeconds` (or `stallFactor` times the longest operation so far, if that is
//   more): the rank that is not waiting in communication is stuck; if all wait, the one that has done least.
// Rank 0 is watched by the others in the same way; the lowest of them reports it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "internevo/activity.h"
#include "trainer/watchdog_limits.h"

namespace internevo::trainer {

/// What people need to find a rank.
struct RankIdentity {
  std::string host;
  int stage = 0;  ///< of the pipeline
};

struct LostRank {
  enum class Kind { died, frozen, stuck };
  int rank = 0;
  Kind kind = Kind::died;
  std::string description;  ///< rank, host, stage, step and last operation, in words
};

/// Where rank 0 listens; plain text, to be broadcast.
using WatchdogEndpoint = std::string;

/// Rank 0's side. `lost` is called once, from the watchdog's thread, for the first rank that is lost.
class WatchdogHub {
 public:
  /// `sameHost`: all ranks are on this host, so only its loopback listens.
  /// Throws Failure communicationError when no port can be opened.
  WatchdogHub(std::vector<RankIdentity> ranks, const WatchdogLimits& limits, const Activity& own,
              bool sameHost, std::function<void(const LostRank&)> lost);
  /// Stops watching; the members see it as a goodbye.
  ~WatchdogHub();
  const WatchdogEndpoint& endpoint() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The side of every other rank.
class WatchdogMember {
 public:
  /// `lost` is called once, from the watchdog's thread, when rank 0 is lost.
  /// Throws Failure communicationError when rank 0 cannot be reached at the endpoint.
  WatchdogMember(int rank, const WatchdogEndpoint& endpoint, const RankIdentity& first,
                 const WatchdogLimits& limits, const Activity& own,
                 std::function<void(const LostRank&)> lost);
  /// Says goodbye.
  ~WatchdogMember();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace internevo::trainer
