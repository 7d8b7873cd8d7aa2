// The kernels of a training step, each timed alone: what a step would take if nothing came between them.
#pragma once

#include "cuda/check/harness.h"
#include "trainer/config.h"

namespace internevo::check {

struct StepKernels {
  std::vector<Measured> each;  ///< of one call
  std::vector<double>
      callsAStep;  ///< of each; a fraction where a call was timed on other sizes that add up to the step's
  double seconds = 0;            ///< Σ calls · seconds of a call
  double productTeraFlops = 0;   ///< of the matrix products among them, a step
  double bestProductFigure = 0;  ///< TFLOP/s of the fastest of them
  std::string message;           ///< of a call that failed
};

/// A step of one sequence on one rank in bfloat16, with the calls of trainer/model_layer.cpp, model_ends.cpp and parameter_store.cpp;
/// the first `recomputed` layers are computed twice.
StepKernels timeStepKernels(Backend& device, const trainer::ModelConfig& model, std::int64_t sequence,
                            std::int64_t recomputed, bool small);

}  // namespace internevo::check
