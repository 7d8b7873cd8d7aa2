#include "backend/cuda/streams.h"

#include <chrono>
#include <thread>

namespace internevo::cuda {

Status Streams::create(Queue* made) {
  INTERNEVO_RETURN_IF_ERROR(make(made));
  queues_.push_back(*made);
  return Status::success();
}

Status Streams::synchronizeAll() {
  for (const Queue& queue : queues_) INTERNEVO_RETURN_IF_ERROR(synchronize(queue));
  return Status::success();
}

/// Asks now and then whether it still can come.
template <typename Done>
Status Streams::waitUntil(const Done& isDone) const {
  constexpr auto kAsk = std::chrono::milliseconds(20);
  auto asked = std::chrono::steady_clock::now();
  for (;;) {
    bool done = false;
    INTERNEVO_RETURN_IF_ERROR(isDone(&done));
    if (done)
      return watch_ ? watch_()
                    : Status::success();  // what was given up ends too, and its results are nobody's
    if (const auto now = std::chrono::steady_clock::now(); watch_ && now - asked > kAsk) {
      INTERNEVO_RETURN_IF_ERROR(watch_());
      asked = now;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Status Streams::synchronize(const Queue& queue) {
  if (!watch_) return block(queue);
  return waitUntil([&](bool* done) { return finished(queue, done); });
}

Status Streams::synchronize(Event event) {
  return waitUntil([&](bool* done) { return happened(event, done); });
}

}  // namespace internevo::cuda
