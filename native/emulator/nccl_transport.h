// How calls of the model of NCCL travel: as MPI's messages, when their stream comes to them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/nccl/api.h"
#include "emulator/stream.h"

#define INTERNEVO_ENTRY extern "C" __attribute__((visibility("default")))

namespace internevo::cuda::model {

using Bytes = std::vector<std::byte>;

constexpr int kInvalidArgument = 4, kInvalidUsage = 5;

struct Communicator {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  std::int64_t issued = 0;            ///< calls given to streams
  std::atomic<std::int64_t> done{0};  ///< calls that are over
  std::atomic<int> error{nccl::kSuccess};
  std::atomic<int> late{2};  ///< times that the answer is still to come
  std::atomic<bool> aborted{false};
};

/// NCCL frees a communicator that is aborted: whoever uses it then ends as such a program may.
Communicator* of(nccl::Comm comm);
/// Ends the program where ranges of the communicator are registered still.
void endWhereRegistered(const Communicator* comm);
/// An abort lets go of them.
void forgetRegistered(const Communicator* comm);

struct Part {
  std::byte* data;
  std::size_t bytes;
  int peer;
};

/// One call: pieces that go and come, and what is done when all are here.
struct Call {
  Communicator* comm = nullptr;
  Stream* stream = nullptr;
  const char* name = "";
  std::vector<Part> sends, receives;
  /// Receives go to buffers; this puts them where they belong.
  std::function<void(const std::vector<Bytes>&)> place;
  /// What it reads beside the pieces that go, and writes when that is not the pieces that come; the peer is nobody.
  std::vector<Part> reads, writes;
};

/// Gives the call to its stream. Calls of a communicator are done one after the other, in the order in which they come here.
int give(Call call);

}  // namespace internevo::cuda::model
