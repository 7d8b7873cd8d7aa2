// Reduce-scatter and all-reduce: every rank owns a chunk, receives the others' contributions to it segment by
// segment, and adds them in tree order. Volume on the wire is the optimum, (size − 1)/size of the tensor each way.
#include <algorithm>

#include "comm/internal.h"

namespace internevo {

namespace {

constexpr int kMaximumGroup = 4096;
constexpr std::int64_t kSmallBytes = 8 << 10;  // below, everyone sends all to everyone and adds it

bool reducible(DataType type) { return type != DataType::int32 && type != DataType::byte; }

Status check(const char* call, const Communicator& group, DataType type, std::int64_t elements,
             const Workspace& workspace) {
  if (!reducible(type) || elements < 0) {
    return {StatusCode::badConfig, std::string(call) +
                                       ": needs float32, bfloat16, float64 or int64 and a size that "
                                       "is not negative"};
  }
  if (group.size() > kMaximumGroup) {
    return {StatusCode::badConfig, std::string(call) + ": a group of " + std::to_string(group.size()) +
                                       " ranks is larger than " + std::to_string(kMaximumGroup)};
  }
  if (group.size() > 1 && (workspace.data == nullptr || workspace.bytes < group.reduceWorkspaceBytes())) {
    return {StatusCode::badConfig, std::string(call) + ": workspace has " + std::to_string(workspace.bytes) +
                                       " bytes; needs " + std::to_string(group.reduceWorkspaceBytes())};
  }
  return Status::success();
}

/// One reduction: chunk j is input[starts(j), starts(j + 1)), and this rank's chunk goes to `output`.
struct Exchange {
  const Communicator& group;
  ConstView input;
  std::byte* output;
  std::int64_t chunkElements, totalElements;
  ReduceOperation operation;
  Workspace workspace;

  std::int64_t segmentElements() const { return segmentBytes(group.size()) / bytesPerElement(input.type); }
  std::int64_t begin(int chunk) const { return std::min(totalElements, chunk * chunkElements); }
  /// Elements of segment `segment` of a chunk.
  std::int64_t length(int chunk, std::int64_t segment) const {
    const std::int64_t chunkLength = begin(chunk + 1) - begin(chunk);
    return std::clamp<std::int64_t>(chunkLength - segment * segmentElements(), 0, segmentElements());
  }
  std::byte* staging(std::int64_t segment, int rank) const {
    return static_cast<std::byte*>(workspace.data) +
           ((segment % 2) * group.size() + rank) * segmentBytes(group.size());
  }
  MPI_Request* requests(std::int64_t segment) const {
    return CommunicatorAccess::requests(group) + (segment % 2) * 2 * group.size();
  }

  Status post(std::int64_t segment) const {
    const int size = group.size(), me = group.index();
    const MPI_Comm comm = CommunicatorAccess::comm(group);
    const std::int64_t width = bytesPerElement(input.type);
    MPI_Request* request = requests(segment);
    const int own = static_cast<int>(length(me, segment) * width);
    for (int step = 1; step < size; ++step, ++request) {
      const int from = (me - step + size) % size;
      *request = MPI_REQUEST_NULL;
      if (own == 0) continue;
      INTERNEVO_RETURN_IF_ERROR(
          mpiStatus(MPI_Irecv(staging(segment, from), own, MPI_BYTE, from, 3, comm, request), "MPI_Irecv"));
    }
    for (int step = 1; step < size; ++step, ++request) {
      const int to = (me + step) % size;
      *request = MPI_REQUEST_NULL;
      const int bytes = static_cast<int>(length(to, segment) * width);
      if (bytes == 0) continue;
      const ConstView piece = input.offset(begin(to) + segment * segmentElements());
      INTERNEVO_RETURN_IF_ERROR(
          mpiStatus(MPI_Isend(piece.data, bytes, MPI_BYTE, to, 3, comm, request), "MPI_Isend"));
    }
    return Status::success();
  }

  Status finish(std::int64_t segment, const char* call) const {
    const int size = group.size(), me = group.index();
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(CommunicatorAccess::waitAll(group, 2 * (size - 1), requests(segment)), call));
    const std::int64_t elements = length(me, segment), at = segment * segmentElements();
    if (elements == 0) return Status::success();
    const void* inputs[kMaximumGroup];
    for (int rank = 0; rank < size; ++rank) inputs[rank] = staging(segment, rank);
    inputs[me] = input.offset(begin(me) + at).data;
    reduceTree(input.type, operation, inputs, size, 0, elements, output + at * bytesPerElement(input.type));
    return Status::success();
  }

  Status run(const char* call) const {
    const std::int64_t segments = (chunkElements + segmentElements() - 1) / segmentElements();
    if (segments == 0) return Status::success();
    INTERNEVO_RETURN_IF_ERROR(post(0));
    for (std::int64_t segment = 0; segment < segments; ++segment) {
      if (segment + 1 < segments) INTERNEVO_RETURN_IF_ERROR(post(segment + 1));
      INTERNEVO_RETURN_IF_ERROR(finish(segment, call));
    }
    return Status::success();
  }
};

/// Everyone sends everything: one message time instead of two.
Status allReduceSmall(const Communicator& group, View data, std::int64_t elements, ReduceOperation operation,
                      const Workspace& workspace) {
  const int size = group.size(), me = group.index();
  const MPI_Comm comm = CommunicatorAccess::comm(group);
  const int bytes = static_cast<int>(elements * bytesPerElement(data.type));
  auto* const staging = static_cast<std::byte*>(workspace.data);
  MPI_Request* const requests = CommunicatorAccess::requests(group);
  const void* inputs[kMaximumGroup];
  inputs[me] = data.data;
  int posted = 0;
  for (int step = 1; step < size; ++step) {
    const int from = (me - step + size) % size;
    inputs[from] = staging + from * segmentBytes(size);
    INTERNEVO_RETURN_IF_ERROR(mpiStatus(
        MPI_Irecv(staging + from * segmentBytes(size), bytes, MPI_BYTE, from, 4, comm, &requests[posted++]),
        "MPI_Irecv"));
  }
  for (int step = 1; step < size; ++step) {
    INTERNEVO_RETURN_IF_ERROR(
        mpiStatus(MPI_Isend(data.data, bytes, MPI_BYTE, (me + step) % size, 4, comm, &requests[posted++]),
                  "MPI_Isend"));
  }
  INTERNEVO_RETURN_IF_ERROR(mpiStatus(CommunicatorAccess::waitAll(group, posted, requests), "allReduce"));
  reduceTree(data.type, operation, inputs, size, 0, elements, data.data);
  return Status::success();
}

/// Chunks of an all-reduce back to everyone, in place.
Status gatherChunks(const Exchange& e, View data) {
  const Communicator& group = e.group;
  const int size = group.size(), me = group.index();
  const MPI_Comm comm = CommunicatorAccess::comm(group);
  const std::int64_t width = bytesPerElement(data.type), step = kMessageBytes / width;
  MPI_Request* const requests = CommunicatorAccess::requests(group);
  for (std::int64_t at = 0; at < e.chunkElements; at += step) {
    const auto bytes = [&](int chunk) {
      return static_cast<int>(std::clamp<std::int64_t>(e.begin(chunk + 1) - e.begin(chunk) - at, 0, step) *
                              width);
    };
    int posted = 0;
    for (int k = 1; k < size; ++k) {
      const int from = (me - k + size) % size;
      if (bytes(from) == 0) continue;
      INTERNEVO_RETURN_IF_ERROR(mpiStatus(MPI_Irecv(data.offset(e.begin(from) + at).data, bytes(from),
                                                    MPI_BYTE, from, 5, comm, &requests[posted++]),
                                          "MPI_Irecv"));
    }
    for (int k = 1; k < size && bytes(me) > 0; ++k) {
      INTERNEVO_RETURN_IF_ERROR(mpiStatus(MPI_Isend(data.offset(e.begin(me) + at).data, bytes(me), MPI_BYTE,
                                                    (me + k) % size, 5, comm, &requests[posted++]),
                                          "MPI_Isend"));
    }
    INTERNEVO_RETURN_IF_ERROR(mpiStatus(CommunicatorAccess::waitAll(group, posted, requests), "allReduce"));
  }
  return Status::success();
}

}  // namespace

std::int64_t Communicator::reduceWorkspaceBytes(int groupSize) {
  return groupSize <= 1 ? 0 : 2 * groupSize * segmentBytes(groupSize);
}

Status Communicator::reduceScatter(ConstView input, View output, std::int64_t chunkElements,
                                   Workspace workspace) const {
  if (device_) return device_->reduceScatter(input, output, chunkElements, workspace);
  INTERNEVO_RETURN_IF_ERROR(check("reduceScatter", *this, input.type, chunkElements, workspace));
  if (output.type != input.type) {
    return {StatusCode::badConfig, "reduceScatter: output must have the type of input"};
  }
  if (size_ == 1) {
    const std::int64_t bytes = chunkElements * bytesPerElement(input.type);
    if (output.data != input.data) std::copy_n(input.as<std::byte>(), bytes, output.as<std::byte>());
    return Status::success();
  }
  return Exchange{
      *this,    input, output.as<std::byte>(), chunkElements, chunkElements * size_, ReduceOperation::sum,
      workspace}
      .run("reduceScatter");
}

Status Communicator::allReduce(View data, std::int64_t elements, ReduceOperation operation,
                               Workspace workspace) const {
  if (device_) return device_->allReduce(data, elements, operation, workspace);
  INTERNEVO_RETURN_IF_ERROR(check("allReduce", *this, data.type, elements, workspace));
  if (size_ == 1 || elements == 0) return Status::success();
  if (elements * bytesPerElement(data.type) <= kSmallBytes) {
    return allReduceSmall(*this, data, elements, operation, workspace);
  }
  const std::int64_t chunk = alignUp((elements + size_ - 1) / size_, 16);
  const Exchange exchange{*this,    data,     data.offset(std::min(elements, index_ * chunk)).as<std::byte>(),
                          chunk,    elements, operation,
                          workspace};
  INTERNEVO_RETURN_IF_ERROR(exchange.run("allReduce"));
  return gatherChunks(exchange, data);
}

}  // namespace internevo
