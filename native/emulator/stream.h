// Streams of the model of a device: what is given to them is done by the device's own thread, in the order of each stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "internevo/status.h"

namespace internevo::cuda::model {

/// Something that takes time, perhaps because it waits for others.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual const char* name() const = 0;
  /// Called by the device's thread until it says that it is done. A problem is the device's end.
  virtual bool advance(Status* problem) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void enqueue(std::unique_ptr<Operation> operation) = 0;
  /// Something that is done at once when its turn comes. Errors: of the body where the model has no thread; else told when somebody waits.
  virtual Status run(const char* name, std::function<Status()> body) = 0;
  /// In an operation: runs the body with the device's memory open.
  virtual void touch(const std::function<void()>& body) = 0;
  /// In an operation: it reads, or writes, these bytes.
  virtual void note(const void* data, std::int64_t bytes, bool writes) = 0;
};

}  // namespace internevo::cuda::model
