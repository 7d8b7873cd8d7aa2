#include "backend/cuda/stream_lane.h"

namespace internevo::cuda {

Status StreamLane::start() {
  INTERNEVO_RETURN_IF_ERROR(streams_.create(&own_));
  INTERNEVO_RETURN_IF_ERROR(streams_.createEvent(&before_));
  for (Streams::Event& event : after_) INTERNEVO_RETURN_IF_ERROR(streams_.createEvent(&event));
  started_ = true;
  return Status::success();
}

Status StreamLane::run(const std::function<Status()>& job) {
  if (!started_) INTERNEVO_RETURN_IF_ERROR(start());
  INTERNEVO_RETURN_IF_ERROR(streams_.record(before_, current_.queue));
  INTERNEVO_RETURN_IF_ERROR(streams_.wait(own_, before_));
  const Queue caller = current_.queue;
  current_.queue = own_;
  const Status done = job();
  current_.queue = caller;
  INTERNEVO_RETURN_IF_ERROR(done);
  return streams_.record(after_[static_cast<std::size_t>(submitted_ + 1) % kCapacity], own_);
}

Lane::Ticket StreamLane::submit(std::function<Status()> job) {
  if (error_.ok()) error_ = run(job);
  return ++submitted_;
}

Status StreamLane::wait(Ticket ticket) {
  if (error_.ok() && ticket > 0)
    error_ = streams_.wait(current_.queue, after_[static_cast<std::size_t>(ticket) % kCapacity]);
  return error_;
}

}  // namespace internevo::cuda
