#include "internevo/lane.h"

#include <sys/prctl.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace internevo {

struct Lane::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::array<std::function<Status()>, kCapacity> jobs;
  Ticket submitted = 0, finished = 0;
  bool closing = false;
  Status error;
  double busySeconds = 0;
  std::thread thread;

  void run() {
    prctl(PR_SET_TIMERSLACK, 5000, 0, 0, 0);  // nanoseconds; short pauses shall stay short
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return finished < submitted || closing; });
      if (finished == submitted) return;
      std::function<Status()> job = std::move(jobs[static_cast<std::size_t>(finished % kCapacity)]);
      const bool skip = !error.ok();
      lock.unlock();
      const auto begin = std::chrono::steady_clock::now();
      Status status = skip ? Status::success() : job();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      lock.lock();
      if (!status.ok() && error.ok()) error = std::move(status);
      busySeconds += seconds;
      ++finished;
      changed.notify_all();
    }
  }
};

Lane::Lane() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Lane::~Lane() {
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Lane::Ticket Lane::submit(std::function<Status()> job) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->submitted - state_->finished < kCapacity; });
  state_->jobs[static_cast<std::size_t>(state_->submitted % kCapacity)] = std::move(job);
  const Ticket ticket = ++state_->submitted;
  lock.unlock();
  state_->changed.notify_all();
  return ticket;
}

Status Lane::wait(Ticket ticket) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->finished >= ticket; });
  return state_->error;
}

Status Lane::waitAll() {
  std::unique_lock lock(state_->mutex);
  const Ticket last = state_->submitted;
  state_->changed.wait(lock, [&] { return state_->finished >= last; });
  return state_->error;
}

double Lane::busySeconds() const {
  std::lock_guard lock(state_->mutex);
  return state_->busySeconds;
}

}  // namespace internevo
