// Communication between GPUs by NCCL: one communicator for all ranks of a run, and what is split off it for every group of the plan's
// mesh and every pair of neighbouring stages.
//
// Communicators are non-blocking: a call that has to wait for other ranks is asked after, so that it ends when one of them is gone or
// the run is abandoned. Whoever waits for a stream asks too (Streams::setWatch).
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "backend/cuda/allocation.h"
#include "backend/cuda/nccl/api.h"
#include "backend/cuda/streams.h"
#include "internevo/device_groups.h"

namespace internevo::cuda {

/// What groups stand on. Everything outlives them.
struct CommunicationParts {
  Streams& streams;
  Current& current;
  MemorySpace& memory;
  Allocation& allocation;
  /// Sums run in the tree of collectives.h, whatever NCCL would choose; else in NCCL's order.
  bool deterministic = true;
};

class NcclCommunication final : public DeviceGroups {
 public:
  explicit NcclCommunication(const CommunicationParts& parts) : parts_(parts) {}
  ~NcclCommunication() override;

  Status createId(void* id) override;
  Status start(const void* id, int rank, int size) override;
  Status makeGroup(int color, int index, int size, bool messages,
                   std::unique_ptr<DeviceGroup>* result) override;
  void abort() noexcept override;

  // ---- for the groups ----------------------------------------------------------------------------------------------------
  const CommunicationParts& parts() const { return parts_; }
  const nccl::Api& api() const { return *api_; }
  /// Makes a call of the library's on this communicator, and gives its answer once it has one. Errors: communicationError, also when
  /// the run was abandoned: then nothing is called. An abort from another thread waits for the call itself, not for its answer.
  template <typename Body>
  Status call(nccl::Comm comm, const char* name, const Body& body) {
    int code = 0;
    {
      const std::lock_guard lock(mutex_);
      if (aborted()) return abandoned(name);
      code = body();
    }
    return settled(code, comm, name);
  }
  /// A communicator of the caller's color, made by all ranks; null for color −1.
  Status split(int color, int key, nccl::Comm* result);
  int ranks() const { return size_; }
  int rank() const { return rank_; }  ///< 0 also before the start
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  /// Ranges are made known as windows, which copy engines serve; else as buffers, where the library takes them.
  bool hasWindows() const {
    return policy_ == nccl::kPolicyZero && api_->commWindowRegister != nullptr && api_->memAlloc != nullptr;
  }
  /// Says once in a run, on one rank, that the library is too old for either.
  void goesWithoutBuffers();

 private:
  nccl::Config configuration() const;
  Status watch();
  Status settled(int result, nccl::Comm comm, const char* call);
  /// Both with the mutex held: an aborted communicator may not even be asked.
  Status failed(int result, nccl::Comm comm, const char* call) const;
  static Status abandoned(const char* call);

  const CommunicationParts parts_;
  const nccl::Api* api_ = nullptr;
  nccl::Policy policy_ = nccl::kPolicyDefault;
  nccl::Comm all_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool saidWithout_ = false;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  ///< of comms_, and of every use of one of them: abort comes from another thread
  std::vector<nccl::Comm> comms_;  ///< in the order in which they were made
};

}  // namespace internevo::cuda
