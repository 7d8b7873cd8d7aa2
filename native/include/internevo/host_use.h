// What else the hosts did while ranks measured: a figure that was taken beside other work is not a figure of the ranks alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace internevo {

/// One machine while its ranks were at work. Seconds of processors count every core: two busy cores make 2 s a second.
struct HostUse {
  std::string host;
  int ranks = 0, cores = 0;
  double seconds = 0;
  double ranksSeconds = 0;               ///< processor time of the ranks themselves
  double othersSeconds = 0;              ///< of all other processes
  double stolenSeconds = 0;              ///< that a hypervisor gave to somebody else
  double loadBefore = 0, loadAfter = 0;  ///< load average of one minute
  int runnableBefore = 0,
      runnableAfter = 0;                 ///< threads that ran or waited for a core, the reading one included
  std::int64_t involuntarySwitches = 0;  ///< times that a rank lost its core before it gave it away
  double clockBeforeHertz = 0, clockAfterHertz = 0;  ///< mean over the cores; 0 where the host does not say
};

/// The counters of the kernel at one moment, as one process reads them.
struct HostCounters {
  double busySeconds = 0, stolenSeconds = 0, ownSeconds = 0;
  double load = 0;
  int runnable = 0;
  std::int64_t involuntarySwitches = 0;
  double clockHertz = 0;

  /// Zeros for what the kernel does not say. `withClock`: reads every core's clock, which takes a while on large hosts.
  static HostCounters read(bool withClock);
};

/// Busy and stolen seconds of a text like /proc/stat, whose times are in ticks of `ticksPerSecond`.
void readProcessorTimes(const std::string& stat, double ticksPerSecond, HostCounters* counters);

/// Measures from its construction on. Construction and `end` are collective over MPI_COMM_WORLD.
class HostUseMeter {
 public:
  HostUseMeter();
  /// At rank 0 every machine once, in the order of their first ranks; empty at the others, and where ranks cannot be reached.
  std::vector<HostUse> end() const;

 private:
  bool isFirst_;
  HostCounters before_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace internevo
