// Messages between two ranks of a group.
#include <algorithm>

#include "comm/internal.h"

namespace internevo {

namespace {

constexpr int kFirstTag = 16;  // the collectives have those below
/// One look moves a part of a message: an answer, or as much as a socket takes.
constexpr int kLooks = 8;

Status check(const char* call, const Communicator& group, std::int64_t elements, int peer, int tag,
             const Transfer& transfer) {
  if (peer < 0 || peer >= group.size() || peer == group.index()) {
    return {StatusCode::badConfig, std::string(call) + ": index " + std::to_string(peer) +
                                       " is not another rank of the group of " +
                                       std::to_string(group.size())};
  }
  if (elements < 0 || tag < 0 || tag >= Communicator::kTags || transfer.pending()) {
    return {StatusCode::badConfig, std::string(call) + ": needs a size that is not negative, a tag below " +
                                       std::to_string(Communicator::kTags) +
                                       " and a transfer that is not pending"};
  }
  return Status::success();
}

}  // namespace

Status Communicator::startSend(ConstView data, std::int64_t elements, int to, int tag,
                               Transfer* transfer) const {
  INTERNEVO_RETURN_IF_ERROR(check("startSend", *this, elements, to, tag, *transfer));
  if (device_) {
    INTERNEVO_RETURN_IF_ERROR(device_->startSend(data, elements, to, tag, &transfer->ticket_));
    transfer->device_ = device_.get();
    return Status::success();
  }
  const std::int64_t bytes = elements * bytesPerElement(data.type);
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    transfer->requests_.push_back(MPI_REQUEST_NULL);
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(MPI_Isend(data.as<std::byte>() + at, static_cast<int>(std::min(kMessageBytes, bytes - at)),
                            MPI_BYTE, to, kFirstTag + tag, comm_, &transfer->requests_.back()),
                  "MPI_Isend"));
  }
  return Status::success();
}

Status Communicator::startReceive(View data, std::int64_t elements, int from, int tag,
                                  Transfer* transfer) const {
  INTERNEVO_RETURN_IF_ERROR(check("startReceive", *this, elements, from, tag, *transfer));
  if (device_) {
    INTERNEVO_RETURN_IF_ERROR(device_->startReceive(data, elements, from, tag, &transfer->ticket_));
    transfer->device_ = device_.get();
    return Status::success();
  }
  const std::int64_t bytes = elements * bytesPerElement(data.type);
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    transfer->requests_.push_back(MPI_REQUEST_NULL);
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(MPI_Irecv(data.as<std::byte>() + at, static_cast<int>(std::min(kMessageBytes, bytes - at)),
                            MPI_BYTE, from, kFirstTag + tag, comm_, &transfer->requests_.back()),
                  "MPI_Irecv"));
  }
  return Status::success();
}

Status Communicator::advance(Transfer* transfer) {
  if (transfer->requests_.empty()) return Status::success();
  int done = 0, code = MPI_SUCCESS;
  for (int look = 0; look < kLooks && done == 0 && code == MPI_SUCCESS; ++look) {
    code = MPI_Testall(static_cast<int>(transfer->requests_.size()), transfer->requests_.data(), &done,
                       MPI_STATUSES_IGNORE);
  }
  return mpiStatus(code, "MPI_Testall");
}

Status Communicator::finish(Transfer* transfer) {
  if (!transfer->pending()) return Status::success();
  if (DeviceGroup* const device = std::exchange(transfer->device_, nullptr); device != nullptr)
    return device->finish(transfer->ticket_);
  const int code =
      waitFor(static_cast<int>(transfer->requests_.size()), transfer->requests_.data(), /*polite=*/false);
  transfer->requests_.clear();
  return mpiStatus(code, "finish");
}

}  // namespace internevo
