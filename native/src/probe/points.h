// What is run at a point, and how often.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "internevo/backend.h"
#include "internevo/collectives.h"
#include "internevo/lane.h"
#include "probe/config.h"
#include "probe/memory.h"

namespace internevo::probe {

/// A prepared call; `flops` counts matrix arithmetic (attention: its causal half), 0 for element-wise modules.
struct Work {
  std::function<Status()> run;
  double flops = 0;
  std::function<Status(const LargestOfRanks&)>
      choose{};  ///< once before `run`, as a run has it; collective. Empty: nothing to choose
};

/// Buffers and the call of one module, forward or backward as in training.
Status prepareModule(const ModulePoint& point, Backend& backend, Memory& memory, Work* work);
/// The call of one collective on this rank's group; nothing to run on a rank that is in no group.
Status prepareCollective(const CollectivePoint& point, const Communicator* group, Memory& memory, Work* work);

struct Samples {
  double medianSeconds = 0, p10Seconds = 0, p90Seconds = 0;
  int count = 0;
};

/// Times calls on all ranks together.
class Timer {
 public:
  Timer(const Config& config, const Communicator& world)
      : config_(config), world_(world), stopwatch_(createHostStopwatch()) {
    scratch_.resize(static_cast<std::size_t>(world.reduceWorkspaceBytes()) + 1);
  }

  /// From here on the time is that of whoever does the backend's calls.
  void use(Backend& backend) { stopwatch_ = backend.createStopwatch(); }

  /// Every rank runs `call` at the same time; a sample is the time of the slowest rank. Goes on until the spread
  /// (p90 − p10) / median is under the target or the time is up, with the least number of samples in any case.
  Status measure(const std::function<Status()>& call, Samples* result);
  /// The largest value over the ranks.
  Status largest(double* value);
  Status largest(std::int64_t* words, int count);
  /// What a run has chosen before its first step, for work that there is a choice for.
  Status choose(const Work& work);
  /// Not ok on every rank when it is not ok on one; only the lowest of the ranks that failed keeps a message.
  Status agree(const Status& own);
  /// The last error came out of agree(), so no rank is left waiting for another.
  bool agreed() const { return agreed_; }

 private:
  Status sample(const std::function<Status()>& call, int repetitions, double* seconds);

  const Config& config_;
  const Communicator& world_;
  std::unique_ptr<Stopwatch> stopwatch_;
  bool agreed_ = false;
  std::vector<std::byte> scratch_;
};

/// Communicators by their groups: made once, as in the trainer.
class Groups {
 public:
  /// The memory is that of devices, whose communication has been started.
  void use(DeviceGroups* device) { device_ = device; }
  /// Null where the rank is in none of the groups. Collective over the world. `polite`: as a lane's groups are that
  /// communicate beside computation.
  Status get(const CollectivePoint& point, int rank, bool polite, const Communicator** result);

 private:
  DeviceGroups* device_ = nullptr;
  /// By groups, polite, and whether messages go through them.
  std::map<std::tuple<std::vector<std::vector<int>>, bool, bool>, std::unique_ptr<Communicator>> made_;
};

}  // namespace internevo::probe
