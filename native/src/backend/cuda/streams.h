// Streams and events of a device, or of the model of one.
#pragma once

#include <functional>
#include <vector>

#include "backend/cuda/queue.h"

namespace internevo::cuda {

/// Where calls of the host thread go: the stream of the lane that it is at. One for a backend, its memory and its groups.
struct Current {
  Queue queue;
};

class Streams {
 public:
  using Event = void*;
  virtual ~Streams() = default;

  /// Both live as long as the object.
  Status create(Queue* made);
  virtual Status createEvent(Event* made) = 0;
  /// The event happens when all that was given to the queue before has been done; a second record takes the place of the first.
  virtual Status record(Event event, const Queue& on) = 0;
  /// What is given to the queue from here on waits for the event as it was last recorded.
  virtual Status wait(const Queue& on, Event event) = 0;
  /// An event that also says when it happened.
  virtual Status createTimedEvent(Event* made) = 0;
  /// Between two of these that have happened.
  virtual Status elapsed(Event begin, Event end, double* seconds) = 0;
  /// From any thread: the event, as it was last recorded, has happened.
  virtual Status happened(Event event, bool* result) = 0;
  virtual Status finished(const Queue& queue, bool* result) = 0;

  /// Blocks until all that was given to the queue has been done, or the watch says that it never will be.
  Status synchronize(const Queue& queue);
  /// The same for an event, from any thread.
  Status synchronize(Event event);
  /// Of all queues, one after the other.
  Status synchronizeAll();
  /// Asked while synchronize waits; null: the caller blocks.
  void setWatch(std::function<Status()> watch) { watch_ = std::move(watch); }

 protected:
  virtual Status make(Queue* made) = 0;
  virtual Status block(const Queue& queue) = 0;

 private:
  template <typename Done>
  Status waitUntil(const Done& done) const;

  std::vector<Queue> queues_;
  std::function<Status()> watch_;
};

}  // namespace internevo::cuda
