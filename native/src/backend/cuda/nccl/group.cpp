// Collectives of a group. What NCCL does not do in the order of collectives.h goes as pieces to the rank that adds them.
#include "backend/cuda/nccl/group.h"

#include <algorithm>
#include <string>

#include "backend/cuda/nccl/sums.h"

namespace internevo::cuda {

using namespace nccl;

namespace {

int typeOf(DataType type) {
  switch (type) {
    case DataType::float32: return kFloat32;
    case DataType::bfloat16: return kBfloat16;
    case DataType::float64: return kFloat64;
    case DataType::int64: return kInt64;
    case DataType::int32:
    case DataType::byte: break;
  }
  return -1;
}

Status badCall(const char* call, const std::string& what) {
  return {StatusCode::badConfig, std::string(call) + ": " + what};
}

Status checkSum(const char* call, DataType type, std::int64_t elements) {
  if (typeOf(type) >= 0 && elements >= 0) return Status::success();
  return badCall(call, "needs float32, bfloat16, float64 or int64 and a size that is not negative");
}

bool addsInTree(DataType type) { return type == DataType::float32 || type == DataType::bfloat16; }

}  // namespace

NcclGroup::~NcclGroup() {
  while (!registered_.empty()) withdraw(registered_.back().data);
}

void* NcclGroup::stream() const { return streamOf(parts_.current.queue); }

/// Answers of the calls of a group: the first that is an error.
#define INTERNEVO_NCCL_TRY(expression)                                                       \
  do {                                                                                       \
    if (const int code = (expression); code != kSuccess && code != kInProgress) return code; \
  } while (false)

template <typename Body>
Status NcclGroup::together(const char* call, const Body& body) {
  return this->call(call, [&]() -> int {
    INTERNEVO_NCCL_TRY(api().groupStart());
    const int code = body(), end = api().groupEnd();
    return code == kSuccess || code == kInProgress ? end : code;
  });
}

// ---- reductions ------------------------------------------------------------------------------------------------------------

/// Chunk j of `input` is [j·chunk, (j+1)·chunk) cut at `total`; this rank's sum goes to `output`.
struct NcclGroup::Pieces {
  ConstView input;
  View output;
  std::int64_t chunk = 0, total = 0;
  std::int64_t begin(int j) const { return std::min(total, j * chunk); }
  std::int64_t length(int j, std::int64_t at, std::int64_t most) const {
    return std::clamp<std::int64_t>(begin(j + 1) - begin(j) - at, 0, most);
  }
};

/// Piece by piece: everyone's contribution to this rank's chunk arrives in the workspace and is added there.
Status NcclGroup::sumOfChunks(const Pieces& p, Workspace workspace) {
  const std::int64_t width = bytesPerElement(p.input.type);
  const std::int64_t room = workspace.bytes / size_ / kAlignmentBytes * kAlignmentBytes / width;
  if (workspace.data == nullptr || room <= 0) {
    return badCall("reduceScatter", "workspace has " + std::to_string(workspace.bytes) + " bytes; needs " +
                                        std::to_string(size_ * kAlignmentBytes));
  }
  const View staging{workspace.data, p.input.type};
  for (std::int64_t at = 0; at < p.chunk; at += room) {
    const auto length = [&](int j) { return p.length(j, at, room); };
    const std::int64_t own = length(index_);
    INTERNEVO_RETURN_IF_ERROR(together("reduce-scatter", [&] {
      for (int step = 1; step < size_; ++step) {
        const int to = (index_ + step) % size_, from = (index_ - step + size_) % size_;
        if (length(to) > 0) {
          INTERNEVO_NCCL_TRY(api().send(p.input.offset(p.begin(to) + at).data,
                                        static_cast<std::size_t>(length(to)), typeOf(p.input.type), to, comm_,
                                        stream()));
        }
        if (own > 0) {
          INTERNEVO_NCCL_TRY(api().receive(staging.offset(from * room).data, static_cast<std::size_t>(own),
                                           typeOf(p.input.type), from, comm_, stream()));
        }
      }
      return int{kSuccess};
    }));
    if (own == 0) continue;
    const SumOfCopies sum{
        1, own, own, size_, index_, staging, room, p.input.offset(p.begin(index_) + at), p.output.offset(at)};
    INTERNEVO_RETURN_IF_ERROR(startSumOfCopies(parts_.current.queue, sum, "sum of a reduce-scatter"));
  }
  return Status::success();
}

Status NcclGroup::gatherChunks(View data, std::int64_t elements, std::int64_t chunk) {
  const auto begin = [&](int j) { return std::min(elements, j * chunk); };
  return together("all-reduce", [&] {
    for (int step = 1; step < size_; ++step) {
      const int to = (index_ + step) % size_, from = (index_ - step + size_) % size_;
      const std::int64_t own = begin(index_ + 1) - begin(index_), theirs = begin(from + 1) - begin(from);
      if (own > 0) {
        INTERNEVO_NCCL_TRY(api().send(data.offset(begin(index_)).data, static_cast<std::size_t>(own),
                                      typeOf(data.type), to, comm_, stream()));
      }
      if (theirs > 0) {
        INTERNEVO_NCCL_TRY(api().receive(data.offset(begin(from)).data, static_cast<std::size_t>(theirs),
                                         typeOf(data.type), from, comm_, stream()));
      }
    }
    return int{kSuccess};
  });
}

Status NcclGroup::reduceScatter(ConstView input, View output, std::int64_t chunkElements,
                                Workspace workspace) {
  INTERNEVO_RETURN_IF_ERROR(checkSum("reduceScatter", input.type, chunkElements));
  if (output.type != input.type) return badCall("reduceScatter", "output must have the type of input");
  if (size_ == 1) {
    if (output.data == input.data || chunkElements == 0) return Status::success();
    return parts_.memory.copy(output.data, input.data, chunkElements * bytesPerElement(input.type));
  }
  if (parts_.deterministic && addsInTree(input.type)) {
    return sumOfChunks({input, output, chunkElements, chunkElements * size_}, workspace);
  }
  return call("ncclReduceScatter", [&] {
    return api().reduceScatter(input.data, output.data, static_cast<std::size_t>(chunkElements),
                               typeOf(input.type), kSum, comm_, stream());
  });
}

Status NcclGroup::allReduce(View data, std::int64_t elements, ReduceOperation operation,
                            Workspace workspace) {
  INTERNEVO_RETURN_IF_ERROR(checkSum("allReduce", data.type, elements));
  if (size_ == 1 || elements == 0) return Status::success();
  if (parts_.deterministic && operation == ReduceOperation::sum && addsInTree(data.type)) {
    const std::int64_t chunk = alignUp((elements + size_ - 1) / size_, 16);
    const Pieces pieces{data, data.offset(std::min(elements, index_ * chunk)), chunk, elements};
    INTERNEVO_RETURN_IF_ERROR(sumOfChunks(pieces, workspace));
    return gatherChunks(data, elements, chunk);
  }
  return call("ncclAllReduce", [&] {
    return api().allReduce(data.data, data.data, static_cast<std::size_t>(elements), typeOf(data.type),
                           operation == ReduceOperation::sum ? kSum : kMaximum, comm_, stream());
  });
}

Status NcclGroup::sumCopies(ConstView blocks, std::int64_t blockElements, int copies, std::int64_t rows,
                            std::int64_t rowElements, View target, std::int64_t targetStride) {
  if (!addsInTree(blocks.type) || target.type != blocks.type)
    return badCall("sumCopies", "needs float32 or bfloat16");
  return startSumOfCopies(parts_.current.queue,
                          {rows, rowElements, targetStride, copies, -1, blocks, blockElements, {}, target},
                          "sum of replicas");
}

// ---- moves -----------------------------------------------------------------------------------------------------------------

Status NcclGroup::allGather(ConstView input, View output, std::int64_t chunkElements) {
  if (chunkElements < 0 || input.type != output.type) {
    return badCall("allGather", "input and output need one type and a size that is not negative");
  }
  const std::int64_t bytes = chunkElements * bytesPerElement(input.type);
  if (bytes == 0) return Status::success();
  if (size_ == 1)
    return input.data == output.data ? Status::success() : parts_.memory.copy(output.data, input.data, bytes);
  return call("ncclAllGather", [&] {
    return api().allGather(input.data, output.data, static_cast<std::size_t>(bytes), kInt8, comm_, stream());
  });
}

Status NcclGroup::broadcast(View data, std::int64_t elements, int root) {
  if (elements < 0 || root < 0 || root >= size_) {
    return badCall("broadcast",
                   "root " + std::to_string(root) + " is not in the group of " + std::to_string(size_));
  }
  const std::int64_t bytes = elements * bytesPerElement(data.type);
  if (size_ == 1 || bytes == 0) return Status::success();
  return call("ncclBroadcast", [&] {
    return api().broadcast(data.data, data.data, static_cast<std::size_t>(bytes), kInt8, root, comm_,
                           stream());
  });
}

Status NcclGroup::allToAll(ConstView input, View output, std::int64_t blockElements) {
  if (blockElements < 0 || input.type != output.type || (size_ > 1 && input.data == output.data)) {
    return badCall("allToAll",
                   "input and output need one type, a size that is not negative and memory of their own");
  }
  const std::int64_t bytes = blockElements * bytesPerElement(input.type);
  if (bytes == 0) return Status::success();
  if (size_ == 1)
    return input.data == output.data ? Status::success() : parts_.memory.copy(output.data, input.data, bytes);
  if (api().allToAll != nullptr) {
    return call("ncclAlltoAll", [&] {
      return api().allToAll(input.data, output.data, static_cast<std::size_t>(bytes), kInt8, comm_, stream());
    });
  }
  const auto* const source = input.as<std::byte>();
  auto* const target = output.as<std::byte>();
  INTERNEVO_RETURN_IF_ERROR(parts_.memory.copy(target + index_ * bytes, source + index_ * bytes, bytes));
  return together("all-to-all", [&] {
    for (int step = 1; step < size_; ++step) {
      const int to = (index_ + step) % size_, from = (index_ - step + size_) % size_;
      INTERNEVO_NCCL_TRY(
          api().send(source + to * bytes, static_cast<std::size_t>(bytes), kInt8, to, comm_, stream()));
      INTERNEVO_NCCL_TRY(api().receive(target + from * bytes, static_cast<std::size_t>(bytes), kInt8, from,
                                       comm_, stream()));
    }
    return int{kSuccess};
  });
}

Status NcclGroup::exchange(const void* out, int to, void* in, int from, std::int64_t bytes) {
  if (bytes == 0) return Status::success();
  if (size_ == 1) return parts_.memory.copy(in, out, bytes);
  return together("exchange", [&] {
    INTERNEVO_NCCL_TRY(api().send(out, static_cast<std::size_t>(bytes), kInt8, to, comm_, stream()));
    INTERNEVO_NCCL_TRY(api().receive(in, static_cast<std::size_t>(bytes), kInt8, from, comm_, stream()));
    return int{kSuccess};
  });
}

// ---- registered memory -----------------------------------------------------------------------------------------------------

Status NcclGroup::announce(void* data, std::int64_t bytes) {
  if (comm_ == nullptr || bytes <= 0) return Status::success();
  const auto known = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const Registered& r) { return r.data == data; });
  if (known != registered_.end())
    return {StatusCode::communicationError, "announce: the range is announced already"};
  Registered made{data, nullptr, all_.hasWindows()};
  const auto size = static_cast<std::size_t>(bytes);
  if (made.window) {
    INTERNEVO_RETURN_IF_ERROR(call("ncclCommWindowRegister", [&] {
      return api().commWindowRegister(comm_, data, size, &made.handle, kWindowSymmetric);
    }));
  } else if (api().commRegister != nullptr) {
    INTERNEVO_RETURN_IF_ERROR(
        call("ncclCommRegister", [&] { return api().commRegister(comm_, data, size, &made.handle); }));
  } else {
    all_.goesWithoutBuffers();
  }
  if (made.handle != nullptr) registered_.push_back(made);  // null: the library has no use for it
  return Status::success();
}

/// An abort lets go of what is registered by itself, once the library's kernels have ended, which use it until then: after one nothing
/// is deregistered.
void NcclGroup::withdraw(void* data) noexcept {
  const auto found = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const Registered& r) { return r.data == data; });
  if (found == registered_.end()) return;
  const Registered gone = *found;
  registered_.erase(found);
  // Collectives on any stream may still be over it.
  if (!parts_.streams.synchronizeAll().ok()) return all_.abort();
  static_cast<void>(call(gone.window ? "ncclCommWindowDeregister" : "ncclCommDeregister", [&] {
    return gone.window ? api().commWindowDeregister(comm_, gone.handle)
                       : api().commDeregister(comm_, gone.handle);
  }));
}

}  // namespace internevo::cuda
