#include "trainer/pipeline_schedule.h"

#include <algorithm>

namespace internevo::trainer {

namespace {

/// The k-th forward (or, with chunks counted from the end, backward) of a stage: `stages` micro-batches through one chunk,
/// then the same through the next, then the following micro-batches. The same on every stage, so that messages arrive in
/// the order in which they are wanted.
PipelineOperation kth(Pass pass, std::int64_t k, int stages, int chunks) {
  if (chunks == 1) return {pass, k, 0};
  const std::int64_t round = std::int64_t{stages} * chunks;
  const int chunk = static_cast<int>(k % round / stages);
  return {pass, k / round * stages + k % stages, pass == Pass::forward ? chunk : chunks - 1 - chunk};
}

}  // namespace

std::vector<PipelineOperation> pipelineSchedule(int stage, int stages, std::int64_t microBatches,
                                                int chunks) {
  const std::int64_t total = microBatches * chunks, after = stages - 1 - stage;
  const std::int64_t warmUp =
      std::min(total, chunks == 1 ? after : 2 * after + std::int64_t{chunks - 1} * stages);
  std::vector<PipelineOperation> operations;
  operations.reserve(static_cast<std::size_t>(2 * total));
  for (std::int64_t k = 0; k < warmUp; ++k) operations.push_back(kth(Pass::forward, k, stages, chunks));
  for (std::int64_t k = 0; k < total; ++k) {
    if (warmUp + k < total) operations.push_back(kth(Pass::forward, warmUp + k, stages, chunks));
    operations.push_back(kth(Pass::backward, k, stages, chunks));
  }
  return operations;
}

std::vector<PipelineOperation> forwardOnly(std::vector<PipelineOperation> operations) {
  std::erase_if(operations, [](const PipelineOperation& each) { return each.pass != Pass::forward; });
  return operations;
}

std::int64_t mostInFlight(const std::vector<PipelineOperation>& operations, int chunk) {
  std::int64_t now = 0, most = 0;
  for (const PipelineOperation& operation : operations) {
    if (operation.chunk != chunk) continue;
    now += operation.pass == Pass::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

bool receives(const PipelineOperation& o, int stage, int stages, int chunks) {
  const bool fromStart = stage == 0 && o.chunk == 0, fromEnd = stage == stages - 1 && o.chunk == chunks - 1;
  return o.pass == Pass::forward ? !fromStart : !fromEnd;
}

bool sends(const PipelineOperation& o, int stage, int stages, int chunks) {
  return receives({o.pass == Pass::forward ? Pass::backward : Pass::forward, o.microBatch, o.chunk}, stage,
                  stages, chunks);
}

PipelineOperation receiverOf(const PipelineOperation& o, int stage, int stages) {
  const int step = o.pass == Pass::forward ? 1 : -1;
  const int edge = o.pass == Pass::forward ? stages - 1 : 0;
  return {o.pass, o.microBatch, stage == edge ? o.chunk + step : o.chunk};
}

}  // namespace internevo::trainer
