// Events of a run: one JSON object a line on standard output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "internevo/host_use.h"
#include "trainer/checkpoint.h"
#include "trainer/failure.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

/// Each call writes one whole line at once, so that lines of several ranks never mix.
/// Errors: Failure internal when standard output cannot be written.
void emitStarted(const Trainer& trainer, const std::vector<std::string>& hosts, std::int64_t resumedFromStep);
/// A line for each: all of them would be longer than what a pipe takes at once.
void emitProducts(const ProductChoices& choices);
void emitPlan(const Config& config, const StagePlans& plans, std::int64_t runtimeBytes,
              std::optional<int> mapStage);
/// What the first step took of the device's memory outside the arena, beside what was planned for that.
void emitCommunicators(std::int64_t plannedBytes, std::int64_t measuredBytes);
void emitStep(const StepResult& result, std::int64_t peakMemoryBytes, std::int64_t residentPeakBytes);
void emitEvaluating(std::int64_t step, std::int64_t batch, std::int64_t batches);
void emitValidation(std::int64_t step, const Evaluation& evaluation);
void emitCheckpoint(const CheckpointResult& result);
void emitHosts(const std::vector<HostUse>& hosts);
void emitDone(std::int64_t step, double loss, const std::string& reason);

/// Never throws: there is nobody left to tell. `continues`: the run goes on all the same.
void emitError(const Problem& problem, int rank, bool continues = false) noexcept;

}  // namespace internevo::trainer
