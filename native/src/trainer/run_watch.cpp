#include "trainer/run_watch.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <thread>

#include "trainer/events.h"
#include "trainer/layout.h"

namespace internevo::trainer {

namespace {

void check(int code) {
  if (code != MPI_SUCCESS)
    throw Failure(StatusCode::communicationError, "the ranks cannot reach one another");
}

constexpr std::chrono::seconds kReleaseTime{3};

[[noreturn]] void waitForTheEnd() {
  for (;;) pause();  // another thread is ending the process
}

}  // namespace

RunWatch::RunWatch(const Config& config, int rank, const Activity& activity, Abandon abandon)
    : rank_(rank), abandon_(std::move(abandon)) {
  shareIdentities(config);
  if (config.watchdog && config.mesh.worldSize > 1) start(*config.watchdog, activity);
}

void RunWatch::shareIdentities(const Config& config) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name own{};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<Name> names(static_cast<std::size_t>(config.mesh.worldSize));
  check(MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME,
                      MPI_CHAR, MPI_COMM_WORLD));
  for (int each = 0; each < config.mesh.worldSize; ++each) {
    identities_.push_back(
        {names[static_cast<std::size_t>(each)].data(), positionOf(config.mesh, each).stage});
  }
}

bool RunWatch::sameHost() const {
  for (const RankIdentity& each : identities_) {
    if (each.host != identities_.front().host) return false;
  }
  return true;
}

void RunWatch::start(const WatchdogLimits& limits, const Activity& activity) {
  const auto onLost = [this](const LostRank& rank) { lost(rank); };
  std::string problem;
  std::array<char, 4096> endpoint{};
  try {
    if (rank_ == 0) {
      hub_ = std::make_unique<WatchdogHub>(identities_, limits, activity, sameHost(), onLost);
      std::snprintf(endpoint.data(), endpoint.size(), "%s", hub_->endpoint().c_str());
    }
  } catch (const Failure& failure) {
    problem = failure.what();
  }
  check(MPI_Bcast(endpoint.data(), static_cast<int>(endpoint.size()), MPI_CHAR, 0, MPI_COMM_WORLD));
  try {
    if (rank_ != 0 && endpoint[0] != '\0') {
      member_ =
          std::make_unique<WatchdogMember>(rank_, endpoint.data(), identity(0), limits, activity, onLost);
    }
  } catch (const Failure& failure) {
    problem = failure.what();
  }
  int sound = problem.empty() ? 1 : 0, all = 0;
  check(MPI_Allreduce(&sound, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  if (all == 1) {
    verdictSeconds_ = limits.silenceSeconds + 2 * limits.beatSeconds;
    return;
  }
  end();
  if (!problem.empty()) std::fprintf(stderr, "the run goes on without a watchdog: %s\n", problem.c_str());
}

void RunWatch::beforeTheEnd(std::function<void()> release) {
  const std::lock_guard lock(mutex_);
  release_ = std::move(release);
}

/// What is let go of may itself hang where the cause is a driver or a network: the job ends all the same.
void RunWatch::release() {
  std::function<void()> body;
  {
    const std::lock_guard lock(mutex_);
    body = release_;
  }
  if (!body) return;
  std::promise<void> done;
  std::future<void> end = done.get_future();
  std::thread([body = std::move(body), done = std::move(done)]() mutable {
    body();
    done.set_value();
  }).detach();
  static_cast<void>(end.wait_for(kReleaseTime));
}

void RunWatch::end() {
  member_.reset();
  hub_.reset();
}

/// In the watchdog's thread. Rank 0 is watched by all others: the lowest of them tells, the next only if that one is gone
/// too, which it knows by being alive still when the job should long have ended.
void RunWatch::lost(const LostRank& lost) {
  if (lost.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(3 * (rank_ - 1)));
  if (told_.exchange(true)) return;  // the computing thread is ending the job, and waits for this one
  emitError({StatusCode::communicationError, lost.description, "", "",
             "look at that rank's host and at its standard error; the run goes on from its last checkpoint"},
            lost.rank);
  release();
  abandon_(exitCodeOf(StatusCode::communicationError));
  waitForTheEnd();
}

void RunWatch::fail(const Problem& problem) {
  if (problem.code == StatusCode::communicationError && (hub_ || member_)) {
    std::this_thread::sleep_for(std::chrono::duration<double>(verdictSeconds_));
  }
  if (told_.exchange(true)) waitForTheEnd();
  end();
  emitError(problem, rank_);
  release();
  abandon_(exitCodeOf(problem.code));
  waitForTheEnd();
}

}  // namespace internevo::trainer
