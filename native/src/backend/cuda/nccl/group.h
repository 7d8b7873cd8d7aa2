// One group of ranks over NCCL.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/nccl/communication.h"

namespace internevo::cuda {

/// As DeviceGroups::makeGroup.
Status makeNcclGroup(NcclCommunication& all, int color, int index, int size, bool messages,
                     std::unique_ptr<DeviceGroup>* result);

/// Messages of one direction between two neighbours: a communicator and a stream of their own, so that one that waits for its other
/// side holds up nothing else.
struct MessageChannel {
  nccl::Comm comm = nullptr;
  int peer = 0;  ///< index in the group
  bool sends = false;
  int parity = 0;  ///< of the tags
  Queue queue;
  Streams::Event before = nullptr;
  static constexpr int kEvents = 16;  ///< messages of a channel whose ticket may still be waited for
  std::array<Streams::Event, kEvents> after{};
  std::int64_t count = 0;
};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(NcclCommunication& all, nccl::Comm comm, int index, int size)
      : all_(all), parts_(all.parts()), comm_(comm), index_(index), size_(size) {}
  ~NcclGroup() override;
  /// Collective over all ranks of the run, also those of no group (null).
  static Status makeChannels(NcclCommunication& all, int color, int index, int size, NcclGroup* group);

  Status allReduce(View data, std::int64_t elements, ReduceOperation operation, Workspace workspace) override;
  Status reduceScatter(ConstView input, View output, std::int64_t chunkElements,
                       Workspace workspace) override;
  Status allGather(ConstView input, View output, std::int64_t chunkElements) override;
  Status broadcast(View data, std::int64_t elements, int root) override;
  Status allToAll(ConstView input, View output, std::int64_t blockElements) override;
  Status exchange(const void* out, int to, void* in, int from, std::int64_t bytes) override;
  Status startSend(ConstView data, std::int64_t elements, int to, int tag, Ticket* ticket) override;
  Status startReceive(View data, std::int64_t elements, int from, int tag, Ticket* ticket) override;
  Status finish(Ticket ticket) override;
  Status sumCopies(ConstView blocks, std::int64_t blockElements, int copies, std::int64_t rows,
                   std::int64_t rowElements, View target, std::int64_t targetStride) override;
  MemorySpace& memory() override { return parts_.memory; }
  Status announce(void* data, std::int64_t bytes) override;
  void withdraw(void* data) noexcept override;

 private:
  struct Pieces;
  struct Registered {
    void* data;
    void* handle;  ///< the library's
    bool window;
  };
  const nccl::Api& api() const { return all_.api(); }
  void* stream() const;
  /// NcclCommunication::call on this group's communicator.
  template <typename Body>
  Status call(const char* name, const Body& body) {
    return all_.call(comm_, name, body);
  }
  /// Several sends and receives at once.
  template <typename Body>
  Status together(const char* call, const Body& body);
  Status sumOfChunks(const Pieces& pieces, Workspace workspace);
  Status gatherChunks(View data, std::int64_t elements, std::int64_t chunk);
  Status startMessage(void* data, std::int64_t bytes, int peer, int tag, bool sends, Ticket* ticket);

  NcclCommunication& all_;
  const CommunicationParts& parts_;
  const nccl::Comm comm_;
  const int index_, size_;
  std::vector<MessageChannel> channels_;
  std::vector<Registered> registered_;
};

}  // namespace internevo::cuda
