// Streams and events of a GPU.
#pragma once

#include <memory>

#include "backend/cuda/streams.h"

namespace internevo::cuda {

/// Of the current device. Streams are of the highest priority but the first: what travels is to begin before what computes goes on.
std::unique_ptr<Streams> createDeviceStreams();

}  // namespace internevo::cuda
