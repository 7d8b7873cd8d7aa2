// Messages between neighbours: making their channels, sending and receiving.
#include <string>

#include "backend/cuda/nccl/group.h"

namespace internevo::cuda {

using namespace nccl;

namespace {

/// Edge i of the ring goes from i to i + 1, and back for odd tags. Edges that share a rank are in different rounds.
int roundOf(int edge, int size) { return size % 2 == 1 && edge == size - 1 ? 2 : edge % 2; }
constexpr int kRounds = 3;

/// The edge of this round that the index is an end of; −1: none.
int edgeOf(int index, int size, int round) {
  for (const int edge : {index, (index + size - 1) % size}) {
    if (roundOf(edge, size) == round) return edge;
  }
  return -1;
}

}  // namespace

Status makeNcclGroup(NcclCommunication& all, int color, int index, int size, bool messages,
                     std::unique_ptr<DeviceGroup>* result) {
  result->reset();
  Comm comm = nullptr;
  // Groups of one kind are of one size: where the caller's has one rank, so have all, and no rank has to take part.
  if (size != 1 && all.ranks() > 1) INTERNEVO_RETURN_IF_ERROR(all.split(color, index, &comm));
  if (color < 0)
    return messages && size > 1 ? NcclGroup::makeChannels(all, color, 0, size, nullptr) : Status::success();
  auto group = std::make_unique<NcclGroup>(all, comm, index, size);
  if (messages && size > 1)
    INTERNEVO_RETURN_IF_ERROR(NcclGroup::makeChannels(all, color, index, size, group.get()));
  *result = std::move(group);
  return Status::success();
}

Status NcclGroup::makeChannels(NcclCommunication& all, int color, int index, int size, NcclGroup* group) {
  Streams& streams = all.parts().streams;
  for (int parity = 0; parity < 2; ++parity) {
    for (int round = 0; round < kRounds; ++round) {
      const int edge = group == nullptr ? -1 : edgeOf(index, size, round), first = edge,
                second = (edge + 1) % size;
      MessageChannel channel;
      // A group's color is below the number of ranks, so edges of all groups have colors of their own.
      const int own = edge < 0 ? -1 : color * size + edge;
      channel.parity = parity;
      channel.sends = index == (parity == 0 ? first : second);
      channel.peer = index == first ? second : first;
      INTERNEVO_RETURN_IF_ERROR(all.split(own, channel.sends ? 0 : 1, &channel.comm));
      if (channel.comm == nullptr) continue;
      INTERNEVO_RETURN_IF_ERROR(streams.create(&channel.queue));
      INTERNEVO_RETURN_IF_ERROR(streams.createEvent(&channel.before));
      for (Streams::Event& event : channel.after) INTERNEVO_RETURN_IF_ERROR(streams.createEvent(&event));
      group->channels_.push_back(channel);
    }
  }
  return Status::success();
}

/// Behind what the caller has called before, on the channel's stream.
Status NcclGroup::startMessage(void* data, std::int64_t bytes, int peer, int tag, bool sends,
                               Ticket* ticket) {
  std::int64_t place = 0;
  for (MessageChannel& c : channels_) {
    const std::int64_t own = place++;
    if (c.peer != peer || c.sends != sends || c.parity != tag % 2) continue;
    INTERNEVO_RETURN_IF_ERROR(parts_.streams.record(c.before, parts_.current.queue));
    INTERNEVO_RETURN_IF_ERROR(parts_.streams.wait(c.queue, c.before));
    void* const on = streamOf(c.queue);
    const auto size = static_cast<std::size_t>(bytes);
    INTERNEVO_RETURN_IF_ERROR(all_.call(c.comm, sends ? "ncclSend" : "ncclRecv", [&] {
      return sends ? api().send(data, size, kInt8, 1, c.comm, on)
                   : api().receive(data, size, kInt8, 0, c.comm, on);
    }));
    const std::int64_t event = c.count++ % MessageChannel::kEvents;
    INTERNEVO_RETURN_IF_ERROR(parts_.streams.record(c.after[static_cast<std::size_t>(event)], c.queue));
    *ticket = own * MessageChannel::kEvents + event;
    return Status::success();
  }
  return {StatusCode::badConfig, "index " + std::to_string(peer) + " is no neighbour of index " +
                                     std::to_string(index_) + " of the group of " + std::to_string(size_) +
                                     "; messages between GPUs go to neighbours only"};
}

Status NcclGroup::startSend(ConstView data, std::int64_t elements, int to, int tag, Ticket* ticket) {
  return startMessage(const_cast<void*>(data.data), elements * bytesPerElement(data.type), to, tag, true,
                      ticket);
}

Status NcclGroup::startReceive(View data, std::int64_t elements, int from, int tag, Ticket* ticket) {
  return startMessage(data.data, elements * bytesPerElement(data.type), from, tag, false, ticket);
}

Status NcclGroup::finish(Ticket ticket) {
  const MessageChannel& c = channels_[static_cast<std::size_t>(ticket / MessageChannel::kEvents)];
  return parts_.streams.wait(parts_.current.queue,
                             c.after[static_cast<std::size_t>(ticket % MessageChannel::kEvents)]);
}

}  // namespace internevo::cuda
