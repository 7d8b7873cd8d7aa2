// Moments that are timed events of streams.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/streams.h"
#include "internevo/activity.h"
#include "internevo/moments.h"

namespace internevo::cuda {

/// Everything given outlives it. Events are made when they are first used and then kept: a step that marks no more than the one before
/// makes none.
class StreamMoments final : public Moments {
 public:
  StreamMoments(Streams& streams, const Current& current, std::int64_t capacity)
      : streams_(streams), current_(current), capacity_(capacity) {}

  Status reset() override {
    if (origin_ == nullptr) INTERNEVO_RETURN_IF_ERROR(streams_.createTimedEvent(&origin_));
    used_ = missed_ = 0;
    INTERNEVO_RETURN_IF_ERROR(streams_.synchronize(current_.queue));
    // With nothing before it, it happens between the two looks at the clock.
    const std::int64_t before = steadyNanoseconds();
    INTERNEVO_RETURN_IF_ERROR(streams_.record(origin_, current_.queue));
    INTERNEVO_RETURN_IF_ERROR(streams_.synchronize(current_.queue));
    originNanoseconds_ = before + (steadyNanoseconds() - before) / 2;
    return Status::success();
  }
  Status mark(std::int64_t* moment) override {
    *moment = -1;
    if (origin_ == nullptr) return {StatusCode::internal, "a moment was marked before the clock was set"};
    if (used_ == capacity_) return ++missed_, Status::success();
    if (used_ == static_cast<std::int64_t>(events_.size())) {
      Streams::Event made = nullptr;
      INTERNEVO_RETURN_IF_ERROR(streams_.createTimedEvent(&made));
      events_.push_back(made);
    }
    INTERNEVO_RETURN_IF_ERROR(streams_.record(events_[static_cast<std::size_t>(used_)], current_.queue));
    *moment = used_++;
    return Status::success();
  }
  Status read(std::int64_t moment, std::int64_t* nanoseconds) override {
    if (moment < 0 || moment >= used_)
      return {StatusCode::internal, "moment " + std::to_string(moment) + " was not marked"};
    const Streams::Event event = events_[static_cast<std::size_t>(moment)];
    INTERNEVO_RETURN_IF_ERROR(streams_.synchronize(event));
    double seconds = 0;
    INTERNEVO_RETURN_IF_ERROR(streams_.elapsed(origin_, event, &seconds));
    *nanoseconds = originNanoseconds_ + static_cast<std::int64_t>(1e9 * seconds);
    return Status::success();
  }
  std::int64_t missed() const override { return missed_; }

 private:
  Streams& streams_;
  const Current& current_;
  const std::int64_t capacity_;
  Streams::Event origin_ = nullptr;
  std::int64_t originNanoseconds_ = 0, used_ = 0, missed_ = 0;
  std::vector<Streams::Event> events_;
};

}  // namespace internevo::cuda
