// What the model with a trace has beside the entry point of the backend's library.
#pragma once

#include <vector>

#include "emulator/trace.h"

/// Entry point: the steps of the backend that was opened last.
using ModelTrace = void (*)(std::vector<internevo::cuda::model::LaunchStep>* steps);
constexpr const char* kModelTraceName = "internevo_model_trace";
