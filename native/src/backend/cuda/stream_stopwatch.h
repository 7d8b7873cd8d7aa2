// A stopwatch that is two events of the current stream.
#pragma once

#include "backend/cuda/streams.h"
#include "internevo/stopwatch.h"

namespace internevo::cuda {

/// Everything given outlives it.
class StreamStopwatch final : public Stopwatch {
 public:
  StreamStopwatch(Streams& streams, const Current& current) : streams_(streams), current_(current) {}

  Status start() override {
    if (begin_ == nullptr) {
      INTERNEVO_RETURN_IF_ERROR(streams_.createTimedEvent(&begin_));
      INTERNEVO_RETURN_IF_ERROR(streams_.createTimedEvent(&end_));
    }
    return streams_.record(begin_, current_.queue);
  }
  Status stop(double* seconds) override {
    if (end_ == nullptr) return {StatusCode::internal, "a stopwatch was stopped that had not been started"};
    INTERNEVO_RETURN_IF_ERROR(streams_.record(end_, current_.queue));
    INTERNEVO_RETURN_IF_ERROR(streams_.synchronize(current_.queue));
    return streams_.elapsed(begin_, end_, seconds);
  }

 private:
  Streams& streams_;
  const Current& current_;
  Streams::Event begin_ = nullptr, end_ = nullptr;
};

}  // namespace internevo::cuda
