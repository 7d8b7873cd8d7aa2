// Collectives over groups of ranks whose memory is that of devices. The programs make a group by MPI first (collectives.h) and give
// it one of these where a backend has them.
//
// Every call goes to the lane that the caller is at, and returns before its work is done. All ranks of a group make the same calls
// in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "internevo/memory_space.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo {

enum class ReduceOperation { sum, maximum };

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  /// Arguments as those of Communicator. Errors: communicationError, badConfig.
  virtual Status allReduce(View data, std::int64_t elements, ReduceOperation operation,
                           Workspace workspace) = 0;
  virtual Status reduceScatter(ConstView input, View output, std::int64_t chunkElements,
                               Workspace workspace) = 0;
  virtual Status allGather(ConstView input, View output, std::int64_t chunkElements) = 0;
  virtual Status broadcast(View data, std::int64_t elements, int root) = 0;
  virtual Status allToAll(ConstView input, View output, std::int64_t blockElements) = 0;
  /// `bytes` of `out` to index `to`, and as many from index `from` to `in`.
  virtual Status exchange(const void* out, int to, void* in, int from, std::int64_t bytes) = 0;

  /// Messages between neighbours of the ring of indices, beside all else. Those of a pair with an even tag arrive in the order in
  /// which they were sent, and so do those with an odd tag: they are to be received in that order.
  using Ticket = std::int64_t;
  virtual Status startSend(ConstView data, std::int64_t elements, int to, int tag, Ticket* ticket) = 0;
  virtual Status startReceive(View data, std::int64_t elements, int from, int tag, Ticket* ticket) = 0;
  /// What the caller calls from here on comes after that message.
  virtual Status finish(Ticket ticket) = 0;

  /// target[r·targetStride + i] = sum over `copies` blocks, in the tree of collectives.h, of blocks[c·blockElements + r·rowElements + i];
  /// float32 or bfloat16.
  virtual Status sumCopies(ConstView blocks, std::int64_t blockElements, int copies, std::int64_t rows,
                           std::int64_t rowElements, View target, std::int64_t targetStride) = 0;
  virtual MemorySpace& memory() = 0;
  /// Tells the library that this group's collectives will often be over this range; where it has no use for that, nothing happens.
  /// All ranks of the group announce ranges of the same sizes in the same order, and withdraw them before their memory is released.
  /// Errors: communicationError, also for a range that is announced already.
  virtual Status announce(void* data, std::int64_t bytes) = 0;
  /// Waits for everything that was called before.
  virtual void withdraw(void* data) noexcept = 0;
};

/// A range that is announced as long as this lives.
class Announcement {
 public:
  Announcement() = default;
  Announcement(Announcement&& other) noexcept
      : group_(std::exchange(other.group_, nullptr)), data_(other.data_) {}
  Announcement& operator=(Announcement&& other) noexcept {
    std::swap(group_, other.group_), std::swap(data_, other.data_);
    return *this;
  }
  ~Announcement() {
    if (group_ != nullptr) group_->withdraw(data_);
  }

  /// `group` null: the memory is the process's, and there is nobody to tell. It outlives the result.
  static Status make(DeviceGroup* group, void* data, std::int64_t bytes, Announcement* result) {
    if (group == nullptr || data == nullptr || bytes <= 0) return Status::success();
    INTERNEVO_RETURN_IF_ERROR(group->announce(data, bytes));
    Announcement made;
    made.group_ = group, made.data_ = data;
    *result = std::move(made);
    return Status::success();
  }

 private:
  DeviceGroup* group_ = nullptr;
  void* data_ = nullptr;
};

/// Of a backend: makes groups.
class DeviceGroups {
 public:
  virtual ~DeviceGroups() = default;

  static constexpr int kIdBytes = 128;
  /// A name for a run, to be given to all its ranks. Errors: badConfig naming the library that is missing.
  virtual Status createId(void* id) = 0;
  /// Collective over `size` ranks; once, before groups of more than one are made. Errors: communicationError, badConfig.
  virtual Status start(const void* id, int rank, int size) = 0;
  /// Makes one group of several that do not overlap. Collective over all ranks that started: those of one group give the same color
  /// (≥ 0, below `size` of start), a rank of none gives −1 and gets null. All give the size that every group of the kind has, and the same
  /// `messages`: startSend and startReceive will be used.
  virtual Status makeGroup(int color, int index, int size, bool messages,
                           std::unique_ptr<DeviceGroup>* result) = 0;
  /// From any thread: whatever waits for other ranks ends, with an error.
  virtual void abort() noexcept = 0;
};

}  // namespace internevo
