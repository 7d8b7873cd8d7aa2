#include "comm/ring_exchange.h"

#include <algorithm>

#include "comm/internal.h"

namespace internevo {

RingExchange::RingExchange(const Communicator& group, int tag, std::int64_t maximumBytes, Lane* lane)
    : group_(group), tag_(tag), maximumBytes_(maximumBytes), lane_(lane) {
  const std::int64_t messages = (maximumBytes + kMessageBytes - 1) / kMessageBytes;
  requests_.assign(static_cast<std::size_t>(2 * messages), MPI_REQUEST_NULL);
}

Status RingExchange::begin(const void* out, void* in, std::int64_t bytes) {
  if (underWay_) return {StatusCode::badConfig, "RingExchange: the exchange before this one is not finished"};
  if (bytes < 0 || bytes > maximumBytes_) {
    return {StatusCode::badConfig, "RingExchange: bytes is " + std::to_string(bytes) + "; must be in [0, " +
                                       std::to_string(maximumBytes_) + "]"};
  }
  out_ = static_cast<const std::byte*>(out), in_ = static_cast<std::byte*>(in), bytes_ = bytes;
  underWay_ = true;
  if (lane_ == nullptr) return post();
  ticket_ = lane_->submit([this]() -> Status {
    INTERNEVO_RETURN_IF_ERROR(post());
    return wait();
  });
  return Status::success();
}

Status RingExchange::finish() {
  if (!underWay_) return {StatusCode::badConfig, "RingExchange: there is no exchange to finish"};
  underWay_ = false;
  return lane_ == nullptr ? wait() : lane_->wait(ticket_);
}

Status RingExchange::post() {
  if (DeviceGroup* const device = group_.device(); device != nullptr) {
    const int ranks = group_.size(), index = group_.index();
    return device->exchange(out_, (index + 1) % ranks, in_, (index + ranks - 1) % ranks, bytes_);
  }
  const int size = group_.size(), next = (group_.index() + 1) % size,
            previous = (group_.index() + size - 1) % size;
  const MPI_Comm comm = CommunicatorAccess::comm(group_);
  posted_ = 0;
  for (std::int64_t at = 0; at < bytes_; at += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes_ - at));
    INTERNEVO_RETURN_IF_ERROR(mpiStatus(
        MPI_Irecv(in_ + at, count, MPI_BYTE, previous, tag_, comm, &requests_[posted_++]), "MPI_Irecv"));
    INTERNEVO_RETURN_IF_ERROR(mpiStatus(
        MPI_Isend(out_ + at, count, MPI_BYTE, next, tag_, comm, &requests_[posted_++]), "MPI_Isend"));
  }
  return Status::success();
}

Status RingExchange::wait() {
  if (group_.device() != nullptr) return Status::success();  // in order with what the caller calls next
  return mpiStatus(CommunicatorAccess::waitAll(group_, posted_, requests_.data()), "ring exchange");
}

}  // namespace internevo
