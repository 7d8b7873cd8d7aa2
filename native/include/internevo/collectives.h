// Collectives over ordered groups of ranks, on MPI.
//
// Sums run in one fixed order, a binary tree over the index in the group:
//   tree(first, count) = tree(first, half) + tree(first + half, count − half), half = largest power of two < count.
// A chunk of a reduce-scatter is therefore the same bits as that part of the all-reduce, whatever the number of
// elements, and for float32, reducing first inside consecutive subgroups and then over the subgroups gives the bits
// of the reduction over the whole group when the size of the subgroups is a power of two.
// bfloat16 is summed in float32 and rounded once.
//
// Every rank of the group must make the same calls in the same order. Calls block until the buffers may be reused.
// A communicator serves one thread at a time; different communicators may be used by different threads at once.
// Errors: communicationError (an MPI call failed), badConfig (arguments).
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "internevo/device_groups.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo {

/// MPI_Init with MPI_THREAD_MULTIPLE, errors returned instead of aborting; finalises in the destructor.
class MpiSession {
 public:
  MpiSession() = default;
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Status start(int* argc, char*** argv);
  /// Ends every rank of the job at once with this exit code (for errors after start). Does not return.
  [[noreturn]] void abandon(int exitCode);
  int rank() const noexcept { return rank_; }
  int worldSize() const noexcept { return worldSize_; }
  /// Distinct host names among the ranks, sorted.
  const std::vector<std::string>& hosts() const noexcept { return hosts_; }

 private:
  int rank_ = 0, worldSize_ = 1;
  std::vector<std::string> hosts_;
  bool started_ = false;
};

/// The caller's place among the ranks of its host, in the order of MPI_COMM_WORLD. Collective over MPI_COMM_WORLD at its first call;
/// 0 without MPI.
int localRank();

/// A message between two ranks that is on its way. Its buffer may be touched again after Communicator::finish.
class Transfer {
 public:
  bool pending() const noexcept { return device_ != nullptr || !requests_.empty(); }

 private:
  friend class Communicator;
  std::vector<MPI_Request> requests_;
  DeviceGroup* device_ = nullptr;  ///< that the message is of, with its ticket
  DeviceGroup::Ticket ticket_ = 0;
};

class Communicator {
 public:
  Communicator() = default;
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  /// A group of world ranks in the given order; index() is the caller's place in it. Collective over the group's
  /// ranks only; `tag` tells apart groups that are being made at the same time. A group of one needs no MPI.
  static Status create(const std::vector<int>& ranks, int tag, Communicator* result);
  /// The caller's group out of a partition of the world into groups. Collective over the world.
  static Status fromPartition(const std::vector<std::vector<int>>& groups, int tag, Communicator* result);

  int index() const noexcept { return index_; }
  int size() const noexcept { return size_; }
  /// A polite communicator leaves its core to others while it waits for messages (it looks for them the more seldom the
  /// longer it waits, at least twice a millisecond): for a thread that communicates beside one that computes.
  void setPolite(bool polite) noexcept { polite_ = polite; }

  /// From here on views are of a device's memory, and every call is the group's: it returns before its work is done, behind what the
  /// caller has called before, and is waited for by what the caller calls next on the same device. What is said here of the order of
  /// sums is then the group's to keep, and barrier has no meaning.
  void moveToDevice(std::unique_ptr<DeviceGroup> device) noexcept { device_ = std::move(device); }
  DeviceGroup* device() const noexcept { return device_.get(); }
  MemorySpace& memory() const noexcept { return device_ ? device_->memory() : hostMemory(); }

  /// Scratch bytes that make every reduction of this group run at full speed, independent of the tensor's size.
  static std::int64_t reduceWorkspaceBytes(int groupSize);
  std::int64_t reduceWorkspaceBytes() const { return reduceWorkspaceBytes(size_); }

  /// data[elements] becomes the sum (or maximum) over the group, in place.
  /// Types: float32, bfloat16, float64, int64.
  Status allReduce(View data, std::int64_t elements, ReduceOperation, Workspace) const;
  /// input[size·chunkElements] -> output[chunkElements], the sum of everyone's chunk index(). output may be
  /// input's own chunk (input + index()·chunkElements). Types as above.
  Status reduceScatter(ConstView input, View output, std::int64_t chunkElements, Workspace) const;
  /// output[size·chunkElements]; input may be output's own chunk. Any type.
  Status allGather(ConstView input, View output, std::int64_t chunkElements) const;
  /// data[elements] of index `root` to everyone.
  Status broadcast(View data, std::int64_t elements, int root) const;
  /// Block j (blockElements) of input goes to index j; block i of output came from index i. No aliasing.
  Status allToAll(ConstView input, View output, std::int64_t blockElements) const;
  Status barrier() const;

  /// Starts sending data[elements] to index `to`, or receiving from index `from`; both return at once. A pair of ranks
  /// tells its messages apart by `tag` (≥ 0, below kTags); those of one tag arrive in order. The transfer must not be
  /// pending. No send waits for anything but its matching receive.
  Status startSend(ConstView data, std::int64_t elements, int to, int tag, Transfer* transfer) const;
  Status startReceive(View data, std::int64_t elements, int from, int tag, Transfer* transfer) const;
  /// Lets a transfer get on without waiting for it: over sockets a message moves only while its two ranks are in such calls. It stays
  /// pending; nothing to do on a device.
  static Status advance(Transfer* transfer);
  /// Waits for a transfer; nothing to do when none is pending.
  static Status finish(Transfer* transfer);
  static constexpr int kTags = 32000;

 private:
  friend struct CommunicatorAccess;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int index_ = 0, size_ = 1;
  bool polite_ = false;
  std::unique_ptr<DeviceGroup> device_;
  mutable std::vector<MPI_Request> requests_;  // room for one call's messages
};

// ---- Ulysses layout moves ----------------------------------------------------------------------------------------

/// One tensor's move between
///   sequence-split: [batch, sequence / sp, heads, headSize]        (all heads, this rank's part of the sequence)
///   head-split:     [batch, sequence, localHeads, headSize]        (the full sequence, this rank's heads)
/// with sp = the group's size. heads ≥ sp: heads must divide by sp, localHeads = heads / sp. heads < sp (key/value
/// heads of grouped-query attention): sp must divide by heads, localHeads = 1 and rank i holds head i·heads/sp, i.e.
/// each head is replicated on sp/heads consecutive ranks.
struct UlyssesShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, headSize = 0;  ///< sequence and heads in full
  std::int64_t sequenceSplitStride = 0;  ///< row stride of the sequence-split side; 0 = heads·headSize
  std::int64_t headSplitStride = 0;      ///< row stride of the head-split side; 0 = localHeads·headSize
};

/// Heads that one rank holds on the head-split side.
std::int64_t ulyssesLocalHeads(std::int64_t heads, int groupSize);
/// Staging for one move (send and receive buffers): 2 · sp · batch · (sequence/sp) · localHeads · headSize elements,
/// each buffer rounded up to 64 bytes.
std::int64_t ulyssesWorkspaceBytes(const UlyssesShape&, int groupSize, DataType);
/// Sequence-split -> head-split. Replicates heads when heads < sp.
Status ulyssesToHeads(const Communicator&, const UlyssesShape&, ConstView source, View target, Workspace);
/// Head-split -> sequence-split: the inverse, and the exact transpose of ulyssesToHeads: replicas of a head are summed
/// (float32, tree order over the group index, rounded once).
Status ulyssesToSequence(const Communicator&, const UlyssesShape&, ConstView source, View target, Workspace);

}  // namespace internevo
