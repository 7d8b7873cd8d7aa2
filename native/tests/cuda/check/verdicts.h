// Verdicts and times as a case's result has them.
#pragma once

#include <memory>

#include "cuda/check/case.h"
#include "cuda/check/harness.h"

namespace internevo::check {

/// The CPU's backend on all cores.
std::unique_ptr<Backend> cpuReference();
Json jsonOf(const Verdict& verdict);
Json jsonOf(const Measured& measured);
/// Adds to result.comparisons; failed with a message where it did not pass.
Outcome noteVerdict(CaseRun& run, const Verdict& verdict, const std::string& against);
/// Adds to result.times; failed where a call failed.
Outcome noteTimes(CaseRun& run, const std::vector<Measured>& all);

}  // namespace internevo::check
