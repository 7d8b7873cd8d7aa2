// NCCL's entry points as this backend uses them, taken out of the library that a run finds: nothing is linked, and what an older
// library lacks is null. Names and numbers are nccl.h's, which abi_check.cpp compares them with where that file is at hand.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "internevo/status.h"

namespace internevo::cuda::nccl {

using Comm = void*;
struct UniqueId {
  char bytes[128];
};

enum Result : int { kSuccess = 0, kInProgress = 7 };
enum Type : int { kInt8 = 0, kInt64 = 4, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Operation : int { kSum = 0, kMaximum = 2 };
constexpr int kNoColor = -1;
enum Policy : int { kPolicyDefault = 0, kPolicyEfficiency = 1, kPolicyZero = 2 };
constexpr int kWindowSymmetric = 1;

/// ncclConfig_t as of 2.27. A library takes as much of it as it knows (`size`), and its own defaults for what is behind.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef, version = 22703;
  int blocking = INT_MIN, cgaClusterSize = INT_MIN, minCtas = INT_MIN, maxCtas = INT_MIN;
  const char* netName = nullptr;
  int splitShare = INT_MIN, trafficClass = INT_MIN;
  const char* commName = nullptr;
  int collnetEnable = INT_MIN, ctaPolicy = INT_MIN, shrinkShare = INT_MIN, nvlsCtas = INT_MIN;
};

/// Counts are elements; `stream` is a cudaStream_t.
struct Api {
  int (*getVersion)(int*) = nullptr;
  int (*getUniqueId)(UniqueId*) = nullptr;
  int (*commInitRankConfig)(Comm*, int ranks, UniqueId, int rank, Config*) = nullptr;
  int (*commSplit)(Comm, int color, int key, Comm*, Config*) = nullptr;
  int (*commGetAsyncError)(Comm, int*) = nullptr;
  int (*commFinalize)(Comm) = nullptr;
  int (*commDestroy)(Comm) = nullptr;
  int (*commAbort)(Comm) = nullptr;
  const char* (*getErrorString)(int) = nullptr;
  const char* (*getLastError)(Comm) = nullptr;
  int (*groupStart)() = nullptr;
  int (*groupEnd)() = nullptr;
  int (*send)(const void*, std::size_t count, int type, int peer, Comm, void* stream) = nullptr;
  int (*receive)(void*, std::size_t count, int type, int peer, Comm, void* stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t count, int type, int root, Comm, void* stream) = nullptr;
  int (*allReduce)(const void*, void*, std::size_t count, int type, int operation, Comm,
                   void* stream) = nullptr;
  int (*reduceScatter)(const void*, void*, std::size_t received, int type, int operation, Comm,
                       void* stream) = nullptr;
  int (*allGather)(const void*, void*, std::size_t sent, int type, Comm, void* stream) = nullptr;
  // What an older library lacks.
  int (*allToAll)(const void*, void*, std::size_t count, int type, Comm, void* stream) = nullptr;  // 2.28
  int (*memAlloc)(void**, std::size_t) = nullptr;                                                  // 2.19
  int (*memFree)(void*) = nullptr;                                                                 // 2.19
  int (*commRegister)(Comm, void*, std::size_t, void** handle) = nullptr;                          // 2.19
  int (*commDeregister)(Comm, void* handle) = nullptr;                                             // 2.19
  int (*commWindowRegister)(Comm, void*, std::size_t, void** window, int flags) = nullptr;         // 2.27
  int (*commWindowDeregister)(Comm, void* window) = nullptr;                                       // 2.27
  int version = 0;
};

/// Opens the library once in a process: the file that INTERNEVO_NCCL_LIBRARY names, else libnccl.so.2 beside this library, else where the
/// system looks. Errors: badConfig naming the file and what is missing.
Status load(const Api** result);
/// "2.27.3" of ncclGetVersion's 22703.
std::string versionText(int version);

}  // namespace internevo::cuda::nccl
