// NCCL's entry points on the model of a device: messages travel by MPI, whose ranks are those of the run, and what a rank gives to a
// stream is done when that stream comes to it. What it keeps to: calls of a communicator are done one after the other, whatever streams
// they are given to; a message waits for its other side; sizes and order that the ranks do not agree on are an error; answers come
// late (ncclInProgress). Sums run in an order of its own, as NCCL's do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "backend/cuda/communication_share.h"
#include "emulator/nccl_transport.h"
#include "internevo/tensor.h"

namespace {

using namespace internevo::cuda::model;
namespace nccl = internevo::cuda::nccl;

constexpr int kVersion = 22809;

struct OpenGroup {
  int depth = 0;
  std::vector<Call> calls;
};
thread_local OpenGroup group;

std::size_t widthOf(int type) {
  switch (type) {
    case nccl::kInt8: return 1;
    case nccl::kBfloat16: return 2;
    case nccl::kFloat32: return 4;
    case nccl::kInt64:
    case nccl::kFloat64: return 8;
    default: return 0;
  }
}

int message(Part part, int type, nccl::Comm comm, void* stream, bool sends) {
  Communicator* const c = of(comm);
  if (c == nullptr || widthOf(type) == 0 || part.peer < 0 || part.peer >= c->size || part.peer == c->rank)
    return kInvalidArgument;
  Call alone;
  Call* call = &alone;
  if (group.depth > 0) {
    auto found = std::find_if(group.calls.begin(), group.calls.end(),
                              [&](const Call& each) { return each.comm == c; });
    if (found == group.calls.end()) found = group.calls.emplace(found);
    call = &*found;
    if (call->stream != nullptr && call->stream != stream) return kInvalidUsage;
  }
  call->comm = c, call->stream = static_cast<Stream*>(stream);
  call->name = group.depth > 0 ? "messages" : sends ? "send" : "receive";
  (sends ? call->sends : call->receives).push_back(part);
  return group.depth > 0 ? int{nccl::kSuccess} : give(std::move(alone));
}

template <typename T>
void combine(std::byte* into, const std::byte* other, std::size_t count, int operation) {
  auto* const a = reinterpret_cast<T*>(into);
  const auto* const b = reinterpret_cast<const T*>(other);
  for (std::size_t i = 0; i < count; ++i) a[i] = operation == nccl::kSum ? a[i] + b[i] : std::max(a[i], b[i]);
}

void combineAny(int type, std::byte* into, const std::byte* other, std::size_t count, int operation) {
  if (type == nccl::kFloat32) return combine<float>(into, other, count, operation);
  if (type == nccl::kFloat64) return combine<double>(into, other, count, operation);
  if (type == nccl::kInt64) return combine<std::int64_t>(into, other, count, operation);
  auto* const a = reinterpret_cast<std::uint16_t*>(into);
  const auto* const b = reinterpret_cast<const std::uint16_t*>(other);
  for (std::size_t i = 0; i < count; ++i) {  // rounded at every step
    const float x = internevo::floatFromBfloat16(a[i]), y = internevo::floatFromBfloat16(b[i]);
    a[i] = internevo::bfloat16FromFloat(operation == nccl::kSum ? x + y : std::max(x, y));
  }
}

/// Everyone's part of what this rank adds, in the order of a ring that ends here.
void reduceInto(Communicator* c, int type, int operation, const std::byte* own,
                const std::vector<Bytes>& others, std::size_t count, std::byte* target) {
  const std::size_t bytes = count * widthOf(type);
  Bytes sum;
  for (int step = 1; step <= c->size; ++step) {
    const int rank = (c->rank + step) % c->size;
    const std::byte* const part =
        rank == c->rank ? own : others[static_cast<std::size_t>(rank < c->rank ? rank : rank - 1)].data();
    if (step == 1) {
      sum.assign(part, part + bytes);
    } else {
      combineAny(type, sum.data(), part, count, operation);
    }
  }
  std::copy(sum.begin(), sum.end(), target);
}

/// Pieces to and from all others in the order of their ranks.
template <typename Outgoing, typename Incoming>
Call toAll(const char* name, nccl::Comm comm, void* stream, std::size_t bytes, const Outgoing& outgoing,
           const Incoming& incoming) {
  Call call;
  call.comm = of(comm), call.stream = static_cast<Stream*>(stream), call.name = name;
  for (int rank = 0; rank < call.comm->size; ++rank) {
    if (rank == call.comm->rank) continue;
    call.sends.push_back({outgoing(rank), bytes, rank});
    call.receives.push_back({incoming(rank), bytes, rank});
  }
  return call;
}

std::byte* at(const void* data, std::size_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

bool cannot(nccl::Comm comm, int type) { return comm == nullptr || widthOf(type) == 0 || group.depth > 0; }

}  // namespace

INTERNEVO_ENTRY int ncclGetVersion(int* version) { return *version = kVersion, nccl::kSuccess; }
INTERNEVO_ENTRY const char* ncclGetErrorString(int code) {
  return code == kInvalidUsage      ? "invalid usage"
         : code == kInvalidArgument ? "invalid argument"
                                    : "error of the model";
}
INTERNEVO_ENTRY const char* ncclGetLastError(nccl::Comm comm) { return of(comm), ""; }

INTERNEVO_ENTRY int ncclGetUniqueId(nccl::UniqueId* id) {
  static int serial = 0;
  int numbers[2] = {0, serial++};
  MPI_Comm_rank(MPI_COMM_WORLD, &numbers[0]);
  std::memcpy(id->bytes, numbers, sizeof numbers);
  return nccl::kSuccess;
}

namespace {
/// As this backend configures them: non-blocking, with no more channels than were planned for.
bool isConfigured(const nccl::Config* config) {
  return config != nullptr && config->magic == 0xcafebeefu && config->blocking == 0 &&
         config->maxCtas == internevo::cuda::kCommunicationBlocks &&
         std::getenv("NCCL_BUFFSIZE") != nullptr && std::getenv("NCCL_NVLS_ENABLE") != nullptr;
}
}  // namespace

INTERNEVO_ENTRY int ncclCommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                           nccl::Config* config) {
  if (!isConfigured(config)) return kInvalidArgument;
  int numbers[2] = {0, 0}, world = 0;
  std::memcpy(numbers, id.bytes, sizeof numbers);
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  const int root = numbers[0], tag = 21000 + numbers[1] % 1000;
  std::vector<int> members(static_cast<std::size_t>(ranks), -1);
  int own[2] = {rank, world};
  if (world == root) {
    members[static_cast<std::size_t>(rank)] = world;
    for (int i = 1; i < ranks; ++i) {
      int other[2];
      MPI_Recv(other, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members[static_cast<std::size_t>(other[0])] = other[1];
    }
    for (const int member : members) {
      if (member != world) MPI_Send(members.data(), ranks, MPI_INT, member, tag, MPI_COMM_WORLD);
    }
  } else {
    MPI_Send(own, 2, MPI_INT, root, tag, MPI_COMM_WORLD);
    MPI_Recv(members.data(), ranks, MPI_INT, root, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  auto made = std::make_unique<Communicator>();
  MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, ranks, members.data(), &chosen);
  MPI_Comm_create_group(MPI_COMM_WORLD, chosen, tag, &made->mpi);
  MPI_Group_free(&chosen), MPI_Group_free(&all);
  MPI_Comm_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
  made->rank = rank, made->size = ranks;
  *comm = made.release();
  return nccl::kInProgress;
}

INTERNEVO_ENTRY int ncclCommSplit(nccl::Comm comm, int color, int key, nccl::Comm* result,
                                  nccl::Config* config) {
  if (!isConfigured(config)) return kInvalidArgument;
  *result = nullptr;
  auto made = std::make_unique<Communicator>();
  MPI_Comm_split(of(comm)->mpi, color < 0 ? MPI_UNDEFINED : color, key, &made->mpi);
  of(comm)->late.store(2);
  if (color < 0) return nccl::kInProgress;
  MPI_Comm_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
  MPI_Comm_rank(made->mpi, &made->rank), MPI_Comm_size(made->mpi, &made->size);
  *result = made.release();
  return nccl::kInProgress;
}

INTERNEVO_ENTRY int ncclCommGetAsyncError(nccl::Comm comm, int* error) {
  Communicator& c = *of(comm);
  *error = c.error.load();
  if (*error == nccl::kSuccess && c.late.load() > 0) {
    c.late.fetch_sub(1);
    *error = nccl::kInProgress;
  }
  return nccl::kSuccess;
}

INTERNEVO_ENTRY int ncclCommFinalize(nccl::Comm comm) { return of(comm)->late.store(2), nccl::kInProgress; }
INTERNEVO_ENTRY int ncclCommDestroy(nccl::Comm comm) {
  Communicator* const c = of(comm);
  endWhereRegistered(c);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&c->mpi);
  delete c;
  return nccl::kSuccess;
}
INTERNEVO_ENTRY int ncclCommAbort(nccl::Comm comm) {
  of(comm)->aborted.store(true);
  forgetRegistered(static_cast<Communicator*>(comm));
  if (const char* const witness = std::getenv("INTERNEVO_NCCL_MODEL_ABORTED"); witness != nullptr)
    std::ofstream(witness) << "aborted\n";
  return nccl::kSuccess;
}

INTERNEVO_ENTRY int ncclGroupStart() { return ++group.depth, nccl::kSuccess; }
INTERNEVO_ENTRY int ncclGroupEnd() {
  if (group.depth == 0) return kInvalidUsage;
  if (--group.depth > 0) return nccl::kSuccess;
  int result = nccl::kSuccess;
  for (Call& call : group.calls) result = give(std::move(call));
  group.calls.clear();
  return result;
}

INTERNEVO_ENTRY int ncclSend(const void* data, std::size_t count, int type, int peer, nccl::Comm comm,
                             void* stream) {
  return message({at(data, 0), count * widthOf(type), peer}, type, comm, stream, true);
}
INTERNEVO_ENTRY int ncclRecv(void* data, std::size_t count, int type, int peer, nccl::Comm comm,
                             void* stream) {
  return message({at(data, 0), count * widthOf(type), peer}, type, comm, stream, false);
}

INTERNEVO_ENTRY int ncclAllGather(const void* input, void* output, std::size_t count, int type,
                                  nccl::Comm comm, void* stream) {
  if (cannot(comm, type)) return kInvalidUsage;
  const std::size_t bytes = count * widthOf(type);
  Communicator* const c = of(comm);
  Call call = toAll(
      "all-gather", comm, stream, bytes, [&](int) { return at(input, 0); },
      [&](int rank) { return at(output, static_cast<std::size_t>(rank) * bytes); });
  call.writes = call.receives;
  if (std::byte* const own = at(output, static_cast<std::size_t>(c->rank) * bytes); own != at(input, 0))
    call.writes.push_back({own, bytes, -1});
  call.place = [receives = call.receives, own = at(input, 0),
                target = at(output, static_cast<std::size_t>(c->rank) * bytes),
                bytes](const std::vector<Bytes>& arrived) {
    if (own != target) std::memmove(target, own, bytes);
    for (std::size_t i = 0; i < receives.size(); ++i)
      std::copy(arrived[i].begin(), arrived[i].end(), receives[i].data);
  };
  return give(std::move(call));
}

INTERNEVO_ENTRY int ncclReduceScatter(const void* input, void* output, std::size_t count, int type,
                                      int operation, nccl::Comm comm, void* stream) {
  if (cannot(comm, type)) return kInvalidUsage;
  const std::size_t bytes = count * widthOf(type);
  Communicator* const c = of(comm);
  Call call = toAll(
      "reduce-scatter", comm, stream, bytes,
      [&](int rank) { return at(input, static_cast<std::size_t>(rank) * bytes); },
      [](int) -> std::byte* { return nullptr; });
  call.reads = {{at(input, static_cast<std::size_t>(c->rank) * bytes), bytes, -1}},
  call.writes = {{at(output, 0), bytes, -1}};
  call.place = [=](const std::vector<Bytes>& arrived) {
    reduceInto(c, type, operation, at(input, static_cast<std::size_t>(c->rank) * bytes), arrived, count,
               at(output, 0));
  };
  return give(std::move(call));
}

/// Every rank adds all parts in the order of the ring that ends at rank 0, so that all have the same bits.
INTERNEVO_ENTRY int ncclAllReduce(const void* input, void* output, std::size_t count, int type, int operation,
                                  nccl::Comm comm, void* stream) {
  if (cannot(comm, type)) return kInvalidUsage;
  Communicator* const c = of(comm);
  const std::size_t bytes = count * widthOf(type);
  Call call = toAll(
      "all-reduce", comm, stream, bytes, [&](int) { return at(input, 0); },
      [](int) -> std::byte* { return nullptr; });
  call.writes = {{at(output, 0), bytes, -1}};
  call.place = [=](const std::vector<Bytes>& arrived) {
    Bytes sum;
    for (int step = 1; step <= c->size; ++step) {
      const int rank = step % c->size;
      const std::byte* const part =
          rank == c->rank ? at(input, 0)
                          : arrived[static_cast<std::size_t>(rank < c->rank ? rank : rank - 1)].data();
      if (step == 1) {
        sum.assign(part, part + bytes);
      } else {
        combineAny(type, sum.data(), part, count, operation);
      }
    }
    std::copy(sum.begin(), sum.end(), at(output, 0));
  };
  return give(std::move(call));
}

INTERNEVO_ENTRY int ncclBroadcast(const void* input, void* output, std::size_t count, int type, int root,
                                  nccl::Comm comm, void* stream) {
  if (cannot(comm, type)) return kInvalidUsage;
  Communicator* const c = of(comm);
  Call call;
  call.comm = c, call.stream = static_cast<Stream*>(stream), call.name = "broadcast";
  const std::size_t bytes = count * widthOf(type);
  for (int rank = 0; rank < c->size && c->rank == root; ++rank) {
    if (rank != root) call.sends.push_back({at(input, 0), bytes, rank});
  }
  if (c->rank != root) call.receives.push_back({at(output, 0), bytes, root});
  return give(std::move(call));
}

#ifndef INTERNEVO_NCCL_MODEL_OLD
INTERNEVO_ENTRY int ncclAlltoAll(const void* input, void* output, std::size_t count, int type,
                                 nccl::Comm comm, void* stream) {
  if (cannot(comm, type)) return kInvalidUsage;
  const std::size_t bytes = count * widthOf(type);
  const auto own = static_cast<std::size_t>(of(comm)->rank) * bytes;
  Call call = toAll(
      "all-to-all", comm, stream, bytes,
      [&](int rank) { return at(input, static_cast<std::size_t>(rank) * bytes); },
      [&](int rank) { return at(output, static_cast<std::size_t>(rank) * bytes); });
  call.reads = {{at(input, own), bytes, -1}}, call.writes = call.receives;
  call.writes.push_back({at(output, own), bytes, -1});
  call.place = [receives = call.receives, source = at(input, own), target = at(output, own),
                bytes](const std::vector<Bytes>& arrived) {
    std::memcpy(target, source, bytes);
    for (std::size_t i = 0; i < receives.size(); ++i)
      std::copy(arrived[i].begin(), arrived[i].end(), receives[i].data);
  };
  return give(std::move(call));
}
#endif
