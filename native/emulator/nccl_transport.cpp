#include "emulator/nccl_transport.h"

#include <string>

namespace internevo::cuda::model {

namespace {

class Transport final : public Operation {
 public:
  Transport(Call call, std::int64_t number) : call_(std::move(call)), number_(number) {}

  const char* name() const override { return call_.name; }
  bool advance(Status* problem) override {
    Communicator& comm = *call_.comm;
    if (comm.aborted.load()) return true;
    if (comm.done.load() != number_) return false;
    if (!started_) start();
    int complete = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses.data()) !=
        MPI_SUCCESS) {
      comm.error.store(kInvalidUsage);
      *problem = {StatusCode::communicationError, "model of NCCL: a message failed"};
      return true;
    }
    if (complete == 0) return false;
    for (std::size_t i = 0; i < call_.receives.size(); ++i) {
      int count = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &count);
      if (static_cast<std::size_t>(count) == call_.receives[i].bytes) continue;
      comm.error.store(kInvalidUsage);
      *problem = {StatusCode::communicationError,
                  "model of NCCL: " + std::to_string(call_.receives[i].bytes) +
                      " bytes were to come from rank " + std::to_string(call_.receives[i].peer) + ", " +
                      std::to_string(count) + " came"};
      return true;
    }
    note(call_.writes.empty() ? call_.receives : call_.writes, true);
    call_.stream->touch([&] {
      if (call_.place) return call_.place(arrived_);
      for (std::size_t i = 0; i < call_.receives.size(); ++i)
        std::copy(arrived_[i].begin(), arrived_[i].end(), call_.receives[i].data);
    });
    comm.done.store(number_ + 1);
    return true;
  }

 private:
  void note(const std::vector<Part>& parts, bool writes) const {
    for (const Part& part : parts)
      call_.stream->note(part.data, static_cast<std::int64_t>(part.bytes), writes);
  }
  void start() {
    started_ = true;
    note(call_.sends, false), note(call_.reads, false);
    call_.stream->touch([&] {
      for (const Part& part : call_.sends) leaving_.emplace_back(part.data, part.data + part.bytes);
    });
    constexpr int kTag = 1;
    requests_.reserve(call_.receives.size() + call_.sends.size());
    // A longer message than the buffer is known by its size and not by a failing receive.
    for (const Part& part : call_.receives) {
      arrived_.emplace_back(part.bytes);
      requests_.push_back(MPI_REQUEST_NULL);
      MPI_Irecv(arrived_.back().data(), static_cast<int>(part.bytes), MPI_BYTE, part.peer, kTag,
                call_.comm->mpi, &requests_.back());
    }
    for (std::size_t i = 0; i < call_.sends.size(); ++i) {
      requests_.push_back(MPI_REQUEST_NULL);
      MPI_Isend(leaving_[i].data(), static_cast<int>(leaving_[i].size()), MPI_BYTE, call_.sends[i].peer, kTag,
                call_.comm->mpi, &requests_.back());
    }
  }

  Call call_;
  const std::int64_t number_;
  bool started_ = false;
  std::vector<Bytes> leaving_, arrived_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

int give(Call call) {
  Communicator& comm = *call.comm;
  if (comm.aborted.load() || call.stream == nullptr) return kInvalidUsage;
  Stream* const stream = call.stream;
  const std::int64_t number = comm.issued++;
  comm.late.store(1);
  stream->enqueue(std::make_unique<Transport>(std::move(call), number));
  return nccl::kInProgress;
}

}  // namespace internevo::cuda::model
