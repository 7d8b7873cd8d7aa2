#include <dlfcn.h>

#include "backend/cuda/nccl/api.h"
#include "backend/cuda/shared_library.h"

namespace internevo::cuda::nccl {

namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 21800;  // ncclCommSplit

Status refused(const std::string& what) { return {StatusCode::badConfig, what}; }

template <typename Function>
bool take(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Status fill(Api* api) {
  std::string name;
  void* const library = openShared("INTERNEVO_NCCL_LIBRARY", kName, &name);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return refused("several GPUs need NCCL, and " + name +
                   " cannot be opened: " + (reason == nullptr ? "no reason given" : reason) +
                   "; install NCCL 2.18 or newer, or set INTERNEVO_NCCL_LIBRARY to its path");
  }
  std::string missing;
  const auto need = [&](const char* symbol, auto* function) {
    if (!take(library, symbol, function) && missing.empty()) missing = symbol;
  };
  need("ncclGetVersion", &api->getVersion), need("ncclGetUniqueId", &api->getUniqueId);
  need("ncclCommInitRankConfig", &api->commInitRankConfig), need("ncclCommSplit", &api->commSplit);
  need("ncclCommGetAsyncError", &api->commGetAsyncError), need("ncclCommFinalize", &api->commFinalize);
  need("ncclCommDestroy", &api->commDestroy), need("ncclCommAbort", &api->commAbort);
  need("ncclGetErrorString", &api->getErrorString), need("ncclGetLastError", &api->getLastError);
  need("ncclGroupStart", &api->groupStart), need("ncclGroupEnd", &api->groupEnd);
  need("ncclSend", &api->send), need("ncclRecv", &api->receive), need("ncclBroadcast", &api->broadcast);
  need("ncclAllReduce", &api->allReduce), need("ncclReduceScatter", &api->reduceScatter),
      need("ncclAllGather", &api->allGather);
  if (!missing.empty()) return refused(name + " has no " + missing + "; NCCL 2.18 or newer is needed");
  if (api->getVersion(&api->version) != kSuccess || api->version < kOldest) {
    return refused(name + " is NCCL " + std::to_string(api->version / 10000) + "." +
                   std::to_string(api->version / 100 % 100) + "; 2.18 or newer is needed");
  }
  take(library, "ncclAlltoAll", &api->allToAll);
  const bool allocates =
      take(library, "ncclMemAlloc", &api->memAlloc) && take(library, "ncclMemFree", &api->memFree);
  if (!allocates) api->memAlloc = nullptr, api->memFree = nullptr;
  const bool registers = take(library, "ncclCommRegister", &api->commRegister) &&
                         take(library, "ncclCommDeregister", &api->commDeregister);
  if (!registers) api->commRegister = nullptr, api->commDeregister = nullptr;
  const bool windows = take(library, "ncclCommWindowRegister", &api->commWindowRegister) &&
                       take(library, "ncclCommWindowDeregister", &api->commWindowDeregister);
  if (!windows) api->commWindowRegister = nullptr, api->commWindowDeregister = nullptr;
  return Status::success();
}

}  // namespace

std::string versionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status load(const Api** result) {
  static Api api;
  static const Status status = fill(&api);
  *result = &api;
  return status;
}

}  // namespace internevo::cuda::nccl
