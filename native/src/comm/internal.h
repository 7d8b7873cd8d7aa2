// Shared by the sources of this folder.
#pragma once

#include <string>

#include "comm/reduce.h"
#include "executor_sizes/executor_sizes.h"
#include "internevo/collectives.h"

namespace internevo {

inline Status mpiStatus(int code, const char* call) {
  if (code == MPI_SUCCESS) return Status::success();
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {StatusCode::communicationError, std::string(call) + ": " + text};
}

/// No message is longer than this (MPI counts are int).
constexpr std::int64_t kMessageBytes = std::int64_t{1} << 30;

/// Bytes of one rank's piece of a reduction that are in flight at one time.
constexpr std::int64_t segmentBytes(int groupSize) {
  std::int64_t bytes = sizes::reductionSegmentBytes;
  while (bytes > sizes::leastReductionSegmentBytes && bytes * groupSize > sizes::reductionSegmentsBudgetBytes)
    bytes /= 2;
  return bytes;
}

/// MPI_Waitall that leaves its core to others while it waits: always where `polite`, and where ranks are told to pause
/// (INTERNEVO_RANKS_PAUSE=1) as soon as somebody else had the core.
int waitFor(int count, MPI_Request* requests, bool polite);

/// The handles behind a communicator, for the functions of this folder.
struct CommunicatorAccess {
  static MPI_Comm comm(const Communicator& c) { return c.comm_; }
  static MPI_Request* requests(const Communicator& c) { return c.requests_.data(); }
  /// MPI_Waitall, politely where the communicator is.
  static int waitAll(const Communicator& c, int count, MPI_Request* requests);
};

}  // namespace internevo
