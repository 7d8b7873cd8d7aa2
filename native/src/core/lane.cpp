#include "internevo/lane.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace internevo {

namespace {

/** What sched_getattr(2) and sched_setattr(2) exchange, in its first version; glibc 2.36 declares neither. */
struct SchedulingAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtimeNanoseconds, deadlineNanoseconds, periodNanoseconds;
};
constexpr std::uint64_t kSliceNanoseconds = 100'000;

/**
 * Asks the kernel for short slices, so that this thread has a core soon after it wakes up: it computes little, and what it waited for goes on
 * only then. Without, Linux from 6.6 on lets a computing thread have its whole slice first, 3 ms and more, at every pause of a collective. Kernels
 * before 6.12 take no slice from threads of the usual policy: then nothing changes, which is why results are not looked at.
 */
void askForShortSlices() {
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.size = sizeof(attributes);
  attributes.runtimeNanoseconds = kSliceNanoseconds;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

struct ThreadLane::State {
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
    askForShortSlices();
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

ThreadLane::ThreadLane() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

ThreadLane::~ThreadLane() {
  {
    std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Lane::Ticket ThreadLane::submit(std::function<Status()> job) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->submitted - state_->finished < kCapacity; });
  state_->jobs[static_cast<std::size_t>(state_->submitted % kCapacity)] = std::move(job);
  const Ticket ticket = ++state_->submitted;
  lock.unlock();
  state_->changed.notify_all();
  return ticket;
}

Status ThreadLane::wait(Ticket ticket) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->finished >= ticket; });
  return state_->error;
}

Status ThreadLane::waitAll() {
  std::unique_lock lock(state_->mutex);
  const Ticket last = state_->submitted;
  state_->changed.wait(lock, [&] { return state_->finished >= last; });
  return state_->error;
}

double ThreadLane::busySeconds() const {
  std::lock_guard lock(state_->mutex);
  return state_->busySeconds;
}

}  // namespace internevo
