// A lane that is a stream: a job is run by the caller at once, and what it gives to the device goes to the lane's stream.
#pragma once

#include <array>

#include "backend/cuda/streams.h"
#include "internevo/lane.h"

namespace internevo::cuda {

/// Neither submit nor wait blocks the program: they order streams by events. Everything given outlives the lane.
class StreamLane final : public Lane {
 public:
  StreamLane(Streams& streams, Current& current) : streams_(streams), current_(current) {}

  Ticket submit(std::function<Status()> job) override;
  Status wait(Ticket ticket) override;
  Status waitAll() override { return wait(submitted_); }
  double busySeconds() const override { return 0; }

 private:
  Status start();
  Status run(const std::function<Status()>& job);

  Streams& streams_;
  Current& current_;
  Queue own_;
  Streams::Event before_ = nullptr;
  std::array<Streams::Event, kCapacity>
      after_{};  ///< of ticket t at t mod kCapacity: a later one says more, never less
  Ticket submitted_ = 0;
  bool started_ = false;
  Status error_;
};

}  // namespace internevo::cuda
