// The order of work on a pipeline stage: 1F1B, and interleaved 1F1B over several chunks a stage (Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2).
#pragma once

#include <cstdint>
#include <vector>

namespace internevo::trainer {

enum class Pass { forward, backward };

struct PipelineOperation {
  Pass pass = Pass::forward;
  std::int64_t microBatch = 0;
  int chunk = 0;  ///< virtual stage = chunk · stages + stage

  bool operator==(const PipelineOperation&) const = default;
};

/// Every micro-batch forward and backward once through every chunk of the stage. With one chunk at most
/// min(stages − stage, microBatches) are in flight. More than one chunk: microBatches must be a multiple of stages.
std::vector<PipelineOperation> pipelineSchedule(int stage, int stages, std::int64_t microBatches, int chunks);

/// The forward passes of a schedule, in its order: what evaluation does.
std::vector<PipelineOperation> forwardOnly(std::vector<PipelineOperation> operations);

/// Most micro-batches of a chunk that have gone forward and not yet backward at one time. They are consecutive ones, so
/// micro-batch mod this number tells their places apart.
std::int64_t mostInFlight(const std::vector<PipelineOperation>& operations, int chunk);

/// Whether an operation takes a message from a neighbour: activations (forward) or their gradient (backward).
bool receives(const PipelineOperation& operation, int stage, int stages, int chunks);
/// Whether its result goes to a neighbour.
bool sends(const PipelineOperation& operation, int stage, int stages, int chunks);
/// The operation, on the neighbour, that takes what this one sends.
PipelineOperation receiverOf(const PipelineOperation& operation, int stage, int stages);

}  // namespace internevo::trainer
