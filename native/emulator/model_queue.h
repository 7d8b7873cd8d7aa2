// A stream of the model of a device.
#pragma once

#include <functional>
#include <utility>

#include "emulator/stream.h"

namespace internevo::cuda {

/// Where calls go; without a stream they are done at once.
struct Queue {
  model::Stream* stream = nullptr;
};
/// As libraries take it.
inline void* streamOf(const Queue& queue) { return queue.stream; }
inline Status runOn(const Queue& queue, const char* name, std::function<Status()> body) {
  return queue.stream == nullptr ? body() : queue.stream->run(name, std::move(body));
}

}  // namespace internevo::cuda
