// A stage's messages to its neighbours: activations onward, their gradients back; [rows, H] in the activation type.
//
// Each direction has one buffer to send from and one to receive into. The receive of the next message is started as soon
// as the one before it was taken, so that a message travels while something else is computed; a send is waited for when
// its buffer is needed again.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "internevo/arena.h"
#include "trainer/groups.h"
#include "trainer/memory_plan.h"
#include "trainer/pipeline_schedule.h"

namespace internevo::trainer {

/// Errors of every call: Failure communicationError.
class PipelineLink {
 public:
  PipelineLink(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena,
               MemorySpace& memory, GroupSet& groups, std::vector<PipelineOperation> operations);

  /// Starts the receives of a step, or of its forward passes alone: they take their messages in the same order.
  void begin(bool onlyForward = false);
  /// Takes the message that this operation needs into target [rows, H]. Operations of a pass in the schedule's order.
  void receive(const PipelineOperation& operation, View target);
  /// The buffer that the next result of a pass is to be written to, once its former content has been taken.
  View sendBuffer(Pass pass);
  /// Starts sending it to the operation that needs it.
  void send(const PipelineOperation& operation);
  /// Lets the messages under way get on, between two operations that compute; not more often than is worth its time.
  void advance();
  /// Waits until everything was taken.
  void finish();

 private:
  struct Direction {
    View outgoing, incoming;
    Transfer sending, receiving;
    std::vector<PipelineOperation> expected;  ///< operations that take a message, in order
    std::size_t next = 0;
  };
  Direction& of(Pass pass) { return directions_[pass == Pass::forward ? 0 : 1]; }
  void startReceive(Pass pass);
  int tagOf(const PipelineOperation& operation) const;

  const int stage_, stages_;
  const std::int64_t elements_, chunks_;
  MemorySpace& memory_;
  GroupSet& groups_;
  std::array<Direction, 2> directions_;
  std::chrono::steady_clock::time_point advancedAt_{};
};

}  // namespace internevo::trainer
