// Values of layers that wait in the host's memory between a layer's forward and its backward pass.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor_sizes/executor_sizes.h"
#include "internevo/arena.h"
#include "internevo/backend.h"
#include "trainer/memory_plan.h"
#include "trainer/pipeline_schedule.h"

namespace internevo::trainer {

/// One pass of one layer, in the order of a step.
struct LayerTurn {
  Pass pass = Pass::forward;
  int layerSet = 0;
  bool recomputed = false;  ///< it makes its values anew in both passes, and nothing is copied
};

/// Two places on the device take turns. While one is used, a lane of its own copies the other out behind the forward pass that used it,
/// or in for the backward pass that comes next. A backward pass right behind the forward pass of the same layer finds what that left.
/// Errors of every call: Failure of a copy.
class LayerOffload {
 public:
  /// To be called once. Where the plan keeps nothing in the host's memory, no call does anything. Errors: Failure outOfMemory.
  void start(const MemoryPlan& plan, Arena& arena, Backend& backend, const std::vector<LayerTurn>& turns);

  bool empty() const { return turns_.empty(); }
  void beginStep() { turn_ = 0; }
  /// Waits until the place of the next turn may be used, and lets the turn after it be fetched. Returns the place. Not to be called
  /// where it is empty.
  int begin();
  /// Behind the last use of the values in that turn.
  void end();

 private:
  struct Turn {
    int place = 0;
    bool fetches = false, leaves = false;  ///< copied in before it, out behind it
    void* host = nullptr;
  };
  /// Of the turn, if it fetches.
  void fetch(std::size_t turn);

  std::int64_t bytes_ = 0;
  std::unique_ptr<HostCopies> copies_;
  std::array<void*, sizes::offloadPlaces> places_{};
  std::vector<Turn> turns_;
  std::size_t turn_ = 0;
  std::array<Lane::Ticket, 2> last_{};  ///< job on each place
  std::unique_ptr<Lane> lane_;          ///< ends first: its jobs copy
};

}  // namespace internevo::trainer
