#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "comm/internal.h"

namespace internevo {

namespace {

Status checkGroup(const std::vector<int>& ranks, int worldSize, int worldRank) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= worldSize) {
    return {StatusCode::badConfig,
            "a group names a rank outside the " + std::to_string(worldSize) + " that run"};
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return {StatusCode::badConfig, "a group names rank " + std::to_string(*twice) + " twice"};
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), worldRank)) {
    return {StatusCode::badConfig,
            "rank " + std::to_string(worldRank) + " makes a group that it is not part of"};
  }
  return Status::success();
}

using std::chrono::nanoseconds;
constexpr nanoseconds kShortestPause = std::chrono::microseconds(30),
                      kLongestPause = std::chrono::microseconds(500);

// Waking up costs the core that computes far more than the look itself: looked for every 30 µs, messages took half of a
// virtual machine's core. A pause is a small part of what was waited already, so the end is seen late by that part at most.
void pauseAfter(nanoseconds waited) {
  constexpr int kPart = 8;
  const timespec pause{0, std::clamp(waited / kPart, kShortestPause, kLongestPause).count()};
  nanosleep(&pause, nullptr);
}

/// Set by who knows that the machine has much other work (libs/launcher/src/environment.ts).
bool ranksPause() {
  static const bool pauses = [] {
    const char* const asked = std::getenv("INTERNEVO_RANKS_PAUSE");
    return asked != nullptr && std::string_view(asked) == "1";
  }();
  return pauses;
}

/// How often somebody else had this thread's core, so far.
long timesSwitched() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw + usage.ru_nivcsw : 0;
}

}  // namespace

int waitFor(int count, MPI_Request* requests, bool polite) {
  if (!polite && !ranksPause()) return MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  constexpr int kLooksInTurn = 16;
  const auto begin = std::chrono::steady_clock::now();
  long switched = polite ? 0 : timesSwitched();
  for (int look = 1;; ++look) {
    int done = 0;
    const int code = MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS || done != 0) return code;
    if (!polite) {
      if (look % kLooksInTurn != 0) continue;
      // While nobody else wants the core, looking on costs nothing. A mere yield leaves it for too short a while.
      const long now = timesSwitched();
      if (now == switched) continue;
    }
    pauseAfter(std::chrono::steady_clock::now() - begin);
    if (!polite) switched = timesSwitched();
  }
}

int CommunicatorAccess::waitAll(const Communicator& c, int count, MPI_Request* requests) {
  return waitFor(count, requests, c.polite_);
}

Communicator::~Communicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (comm_ != MPI_COMM_NULL && finalized == 0) MPI_Comm_free(&comm_);
}

Communicator::Communicator(Communicator&& other) noexcept { *this = std::move(other); }

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(index_, other.index_);
  std::swap(size_, other.size_);
  std::swap(polite_, other.polite_);
  std::swap(device_, other.device_);
  std::swap(requests_, other.requests_);
  return *this;
}

Status Communicator::create(const std::vector<int>& ranks, int tag, Communicator* result) {
  int worldRank = 0, worldSize = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &worldRank);
  MPI_Comm_size(MPI_COMM_WORLD, &worldSize);
  INTERNEVO_RETURN_IF_ERROR(checkGroup(ranks, worldSize, worldRank));
  Communicator made;
  made.size_ = static_cast<int>(ranks.size());
  made.index_ = static_cast<int>(std::find(ranks.begin(), ranks.end(), worldRank) - ranks.begin());
  if (made.size_ > 1) {
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int code = MPI_Group_incl(world, made.size_, ranks.data(), &group);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made.comm_);
    if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
    MPI_Group_free(&world);
    INTERNEVO_RETURN_IF_ERROR(mpiStatus(code, "MPI_Comm_create_group"));
    MPI_Comm_set_errhandler(made.comm_, MPI_ERRORS_RETURN);
    // Two segments of a reduction are in flight, each with a send and a receive for every other rank.
    made.requests_.assign(static_cast<std::size_t>(4 * made.size_), MPI_REQUEST_NULL);
  }
  *result = std::move(made);
  return Status::success();
}

Status Communicator::fromPartition(const std::vector<std::vector<int>>& groups, int tag,
                                   Communicator* result) {
  int worldRank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &worldRank);
  for (const std::vector<int>& group : groups) {
    if (std::find(group.begin(), group.end(), worldRank) != group.end()) return create(group, tag, result);
  }
  return {StatusCode::badConfig,
          "rank " + std::to_string(worldRank) + " is in none of the groups of the partition"};
}

Status Communicator::allGather(ConstView input, View output, std::int64_t chunkElements) const {
  if (device_) return device_->allGather(input, output, chunkElements);
  if (chunkElements < 0 || input.type != output.type) {
    return {StatusCode::badConfig,
            "allGather: input and output need one type and a size that is not negative"};
  }
  const std::int64_t bytes = chunkElements * bytesPerElement(input.type);
  auto* const target = output.as<std::byte>();
  std::byte* const own = target + index_ * bytes;
  if (own != input.data) std::copy_n(input.as<std::byte>(), bytes, own);
  for (std::int64_t at = 0; size_ > 1 && at < bytes; at += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - at));
    int posted = 0;
    for (int step = 1; step < size_; ++step) {
      const int from = (index_ - step + size_) % size_;
      INTERNEVO_RETURN_IF_ERROR(mpiStatus(
          MPI_Irecv(target + from * bytes + at, count, MPI_BYTE, from, 1, comm_, &requests_[posted++]),
          "MPI_Irecv"));
    }
    for (int step = 1; step < size_; ++step) {
      INTERNEVO_RETURN_IF_ERROR(mpiStatus(
          MPI_Isend(own + at, count, MPI_BYTE, (index_ + step) % size_, 1, comm_, &requests_[posted++]),
          "MPI_Isend"));
    }
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(CommunicatorAccess::waitAll(*this, posted, requests_.data()), "allGather"));
  }
  return Status::success();
}

Status Communicator::allToAll(ConstView input, View output, std::int64_t blockElements) const {
  if (device_) return device_->allToAll(input, output, blockElements);
  if (blockElements < 0 || input.type != output.type || (size_ > 1 && input.data == output.data)) {
    return {StatusCode::badConfig,
            "allToAll: input and output need one type, a size that is not negative and "
            "memory of their own"};
  }
  const std::int64_t bytes = blockElements * bytesPerElement(input.type);
  const auto* const source = input.as<std::byte>();
  auto* const target = output.as<std::byte>();
  if (source != target) std::copy_n(source + index_ * bytes, bytes, target + index_ * bytes);
  for (std::int64_t at = 0; size_ > 1 && at < bytes; at += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - at));
    int posted = 0;
    for (int step = 1; step < size_; ++step) {
      const int from = (index_ - step + size_) % size_;
      INTERNEVO_RETURN_IF_ERROR(mpiStatus(
          MPI_Irecv(target + from * bytes + at, count, MPI_BYTE, from, 2, comm_, &requests_[posted++]),
          "MPI_Irecv"));
    }
    for (int step = 1; step < size_; ++step) {
      const int to = (index_ + step) % size_;
      INTERNEVO_RETURN_IF_ERROR(
          mpiStatus(MPI_Isend(source + to * bytes + at, count, MPI_BYTE, to, 2, comm_, &requests_[posted++]),
                    "MPI_Isend"));
    }
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(CommunicatorAccess::waitAll(*this, posted, requests_.data()), "allToAll"));
  }
  return Status::success();
}

Status Communicator::broadcast(View data, std::int64_t elements, int root) const {
  if (device_) return device_->broadcast(data, elements, root);
  if (elements < 0 || root < 0 || root >= size_) {
    return {StatusCode::badConfig,
            "broadcast: root " + std::to_string(root) + " is not in the group of " + std::to_string(size_)};
  }
  const std::int64_t bytes = elements * bytesPerElement(data.type);
  for (std::int64_t at = 0; size_ > 1 && at < bytes; at += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - at));
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(MPI_Bcast(data.as<std::byte>() + at, count, MPI_BYTE, root, comm_), "MPI_Bcast"));
  }
  return Status::success();
}

Status Communicator::barrier() const {
  return size_ == 1 ? Status::success() : mpiStatus(MPI_Barrier(comm_), "MPI_Barrier");
}

}  // namespace internevo
