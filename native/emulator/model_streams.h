// Streams and events of the model of a device.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/streams.h"
#include "emulator/trace.h"

namespace internevo::cuda::model {

/// Which stream's work is done first where several have some: the first one made (what travels is late), the last one made (what
/// travels is early), or now this and now that. Results may not depend on it.
enum class StreamOrder { first, last, mixed };

/// With `thread`, calls return before their work is done, as those of a GPU; else work is done in the call.
/// `trace`, where there is one, is told of all that is given to them.
std::unique_ptr<Streams> createModelStreams(bool thread, StreamOrder order, LaunchTrace* trace = nullptr);
/// Waits for everything that was given to such streams, as a GPU does before it releases memory.
void finishAll(Streams& streams) noexcept;
/// In an operation: what it is said to take, which events of the device's clock then tell.
void addDeviceTime(std::int64_t nanoseconds) noexcept;
/// What INTERNEVO_MODEL_STREAMS names: first (also unless it is set), last, mixed.
StreamOrder streamOrderAsked();

}  // namespace internevo::cuda::model
