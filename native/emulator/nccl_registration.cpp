// Registered ranges of the model of NCCL. Found: a range that is registered twice or overlaps another of its communicator; one that is
// not, and is deregistered; a communicator that goes, and memory that is released (model_memory.cpp asks), while a range is
// registered; windows that the ranks of a communicator do not make at once or of one size, or of memory that is not the library's.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "emulator/nccl_transport.h"

namespace internevo::cuda::model {

namespace {

struct Registered {
  const Communicator* comm;
  const std::byte* data;
  std::size_t bytes;
  bool window;
};
std::mutex mutex;
std::vector<Registered> all;
std::map<std::byte*, std::size_t> given;  ///< memory of the library's

bool overlaps(const Registered& r, const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return begin < r.data + r.bytes && r.data < begin + bytes;
}

void tell(const char* what, std::size_t bytes) {
  if (const char* const witness = std::getenv("INTERNEVO_NCCL_MODEL_REGISTERED"); witness != nullptr) {
    std::ofstream(witness, std::ios::app) << what << ' ' << bytes << '\n';
  }
}

[[maybe_unused]] int add(nccl::Comm comm, void* data, std::size_t bytes, void** handle, bool window) {
  const Communicator* const c = of(comm);
  const std::lock_guard lock(mutex);
  *handle = nullptr;
  for (const Registered& each : all) {
    if (each.comm == c && overlaps(each, data, bytes)) return kInvalidUsage;
  }
  all.push_back({c, static_cast<std::byte*>(data), bytes, window});
  *handle = data;
  return tell(window ? "window" : "buffer", bytes), nccl::kSuccess;
}

[[maybe_unused]] int drop(nccl::Comm comm, const void* handle, bool window) {
  const Communicator* const c = of(comm);
  const std::lock_guard lock(mutex);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Registered& r) {
    return r.comm == c && r.data == handle && r.window == window;
  });
  if (found == all.end() || c->done.load() != c->issued)
    return kInvalidUsage;  // or what is over it is still under way
  tell("gone", found->bytes);
  all.erase(found);
  return nccl::kSuccess;
}

}  // namespace

Communicator* of(nccl::Comm comm) {
  auto* const result = static_cast<Communicator*>(comm);
  if (result != nullptr && result->aborted.load()) {
    std::fputs("model of NCCL: a communicator was used after it had been aborted\n", stderr);
    std::abort();
  }
  return result;
}

void endWhereRegistered(const Communicator* comm) {
  const std::lock_guard lock(mutex);
  if (std::none_of(all.begin(), all.end(), [&](const Registered& r) { return r.comm == comm; })) return;
  std::fputs("model of NCCL: a communicator goes before what is registered with it\n", stderr);
  std::abort();
}

void forgetRegistered(const Communicator* comm) {
  const std::lock_guard lock(mutex);
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Registered& r) { return r.comm == comm; }),
            all.end());
}

}  // namespace internevo::cuda::model

using namespace internevo::cuda::model;
namespace nccl = internevo::cuda::nccl;

/// How many registered ranges have bytes of this one.
INTERNEVO_ENTRY int internevoNcclModelRegistered(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const Registered& r) { return overlaps(r, data, bytes); }));
}

#ifndef INTERNEVO_NCCL_MODEL_OLD
INTERNEVO_ENTRY int ncclMemAlloc(void** data, std::size_t bytes) {
  *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*data == MAP_FAILED) return *data = nullptr, kInvalidArgument;
  const std::lock_guard lock(mutex);
  given.emplace(static_cast<std::byte*>(*data), bytes);
  return nccl::kSuccess;
}
INTERNEVO_ENTRY int ncclMemFree(void* data) {
  const std::lock_guard lock(mutex);
  const auto found = given.find(static_cast<std::byte*>(data));
  if (found == given.end()) return kInvalidArgument;
  munmap(data, found->second);
  given.erase(found);
  return nccl::kSuccess;
}

INTERNEVO_ENTRY int ncclCommRegister(nccl::Comm comm, void* data, std::size_t bytes, void** handle) {
  return add(comm, data, bytes, handle, false);
}
INTERNEVO_ENTRY int ncclCommDeregister(nccl::Comm comm, void* handle) { return drop(comm, handle, false); }

/// All ranks of the communicator call it.
INTERNEVO_ENTRY int ncclCommWindowRegister(nccl::Comm comm, void* data, std::size_t bytes, void** window,
                                           int flags) {
  *window = nullptr;
  if (flags != nccl::kWindowSymmetric) return kInvalidArgument;
  const auto own = static_cast<std::int64_t>(bytes);
  std::int64_t sizes[2] = {own, -own};
  MPI_Allreduce(MPI_IN_PLACE, sizes, 2, MPI_INT64_T, MPI_MAX, of(comm)->mpi);
  of(comm)->late.store(2);
  if (sizes[0] != own || sizes[1] != -own) return kInvalidArgument;
  {
    const std::lock_guard lock(mutex);
    const auto* const begin = static_cast<std::byte*>(data);
    if (std::none_of(given.begin(), given.end(), [&](const auto& g) {
          return begin >= g.first && begin + bytes <= g.first + g.second;
        })) {
      return nccl::kInProgress;  // no window, as where the hardware has none
    }
  }
  const int code = add(comm, data, bytes, window, true);
  return code == nccl::kSuccess ? int{nccl::kInProgress} : code;
}
INTERNEVO_ENTRY int ncclCommWindowDeregister(nccl::Comm comm, void* window) {
  return drop(comm, window, true);
}
#endif
