#include "backend/cuda/nccl/communication.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "backend/cuda/communication_share.h"
#include "backend/cuda/nccl/group.h"

namespace internevo::cuda {

using namespace nccl;

namespace {

// What the library allocates of the device's memory (transport/p2p.cc, transport/net.cc and init.cc of NCCL 2.28): for every connection of a channel
// buffers of its three protocols, in pieces of 2 MiB; for messages to other hosts a pool that a communicator's peers share. The sizes of
// two protocols are its own, that of the third is set here.
constexpr std::int64_t kPiece = std::int64_t{2} << 20, kSimple = std::int64_t{4} << 20;
constexpr std::int64_t kLowLatency = 8 * 512 * 8 * 16, kLowLatency128 = 120 * 640 * 8 * 8, kHeader = 4096;
constexpr std::int64_t kBuffers = alignUp(kHeader + kLowLatency + kLowLatency128 + kSimple, kPiece);
static_assert(sizes::messageConnectionBytes == kBuffers + kPiece,
              "to a GPU of this host: its receiver has the buffers");
static_assert(sizes::collectiveConnectionBytes == 2 * kBuffers, "over a network both sides have");
static_assert(sizes::sharedMessageBytes == 2 * 16 * (std::int64_t{128} << 10),
              "16 steps of 128 KiB, both ways");

/// What the memory plan stands on. Who sets one of them otherwise has another plan.
void boundMemory() {
  setenv("NCCL_BUFFSIZE", std::to_string(kSimple).c_str(), 0);
  setenv("NCCL_RUNTIME_CONNECT", "1", 0);  // nothing for groups that never communicate
  setenv("NCCL_NVLS_ENABLE", "0", 0);      // its buffers grow with channels times GPUs of a host
}

/// Longer than any start of a job's ranks takes, and than any of them may be behind in a step.
constexpr std::chrono::minutes kPatience{10};

Status policyOf(Policy* policy) {
  const char* const asked = std::getenv("INTERNEVO_NCCL_POLICY");
  const std::string name = asked == nullptr ? "" : asked;
  if (name.empty() || name == "default") return Status::success();
  if (name == "efficiency") return *policy = kPolicyEfficiency, Status::success();
  if (name == "zero") return *policy = kPolicyZero, Status::success();
  return {StatusCode::badConfig, "INTERNEVO_NCCL_POLICY is " + name + "; give default, efficiency or zero"};
}

}  // namespace

NcclCommunication::~NcclCommunication() {
  if (api_ == nullptr || aborted()) return;
  parts_.streams.setWatch({});
  // What was split off first. All ranks are here, or this process would have been ended.
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) {
    static_cast<void>(call(*comm, "ncclCommFinalize", [&] { return api_->commFinalize(*comm); }));
    if (aborted()) return;
    api_->commDestroy(*comm);
  }
}

Status NcclCommunication::failed(int result, Comm comm, const char* call) const {
  const char* const text = api_->getErrorString(result);
  const char* const last = comm == nullptr ? nullptr : api_->getLastError(comm);
  return {StatusCode::communicationError,
          std::string(call) + ": " + (text == nullptr ? "unknown error" : text) +
              (last == nullptr || *last == '\0' ? "" : std::string(": ") + last)};
}

Status NcclCommunication::abandoned(const char* call) {
  return {StatusCode::communicationError, std::string(call) + ": the run was abandoned"};
}

Status NcclCommunication::settled(int result, Comm comm, const char* call) {
  if (result == kSuccess) return Status::success();
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    Status status;
    {
      const std::lock_guard lock(mutex_);
      if (aborted()) return abandoned(call);
      if (result != kInProgress) return failed(result, comm, call);
      int state = kSuccess;
      if (const int code = api_->commGetAsyncError(comm, &state); code != kSuccess)
        return failed(code, comm, call);
      if (state == kSuccess) return Status::success();
      if (state != kInProgress) status = failed(state, comm, call);
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (status.ok() && waited > kPatience) {
      status = {StatusCode::communicationError,
                std::string(call) + ": the other ranks did not come within 10 minutes"};
    }
    if (!status.ok()) {
      abort();
      return status;
    }
    if (waited > std::chrono::milliseconds(1)) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

Config NcclCommunication::configuration() const {
  Config config;
  config.blocking = 0;
  config.splitShare = 0;  // communicators are used at the same time on streams of their own
  config.maxCtas = kCommunicationBlocks;
  if (policy_ != kPolicyDefault) config.ctaPolicy = policy_;
  return config;
}

Status NcclCommunication::createId(void* id) {
  INTERNEVO_RETURN_IF_ERROR(load(&api_));
  INTERNEVO_RETURN_IF_ERROR(policyOf(&policy_));
  if (id == nullptr) return Status::success();
  UniqueId made{};
  static_assert(sizeof made == kIdBytes);
  if (const int code = api_->getUniqueId(&made); code != kSuccess)
    return failed(code, nullptr, "ncclGetUniqueId");
  std::memcpy(id, &made, sizeof made);
  return Status::success();
}

Status NcclCommunication::start(const void* id, int rank, int size) {
  if (all_ != nullptr) return {StatusCode::internal, "communication was started already"};
  INTERNEVO_RETURN_IF_ERROR(load(&api_));
  UniqueId name{};
  std::memcpy(&name, id, sizeof name);
  if (const char* const shared = std::getenv("INTERNEVO_SHARE_GPU"); shared != nullptr && *shared == '1') {
    // NCCL takes ranks for those of different hosts then, and lets them share a GPU: for tests.
    setenv("NCCL_HOSTID", ("internevo-rank-" + std::to_string(rank)).c_str(), 0);
  }
  boundMemory();
  Config config = configuration();
  int code = 0;
  {
    const std::lock_guard lock(mutex_);
    code = api_->commInitRankConfig(&all_, size, name, rank, &config);
    if (all_ != nullptr) comms_.push_back(all_);
  }
  INTERNEVO_RETURN_IF_ERROR(settled(code, all_, "ncclCommInitRankConfig"));
  rank_ = rank, size_ = size;
  // Windows are of memory that the library gave out: the arena, which comes after this.
  if (hasWindows()) parts_.allocation = {api_->memAlloc, api_->memFree};
  parts_.streams.setWatch([this] { return watch(); });
  return Status::success();
}

Status NcclCommunication::split(int color, int key, Comm* result) {
  Config config = configuration();
  *result = nullptr;
  int code = 0;
  INTERNEVO_RETURN_IF_ERROR(call(all_, "ncclCommSplit", [&] {
    return code = api_->commSplit(all_, color < 0 ? kNoColor : color, key, result, &config);
  }));
  if (*result == nullptr) return Status::success();
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return abandoned("ncclCommSplit");
    comms_.push_back(*result);
  }
  return settled(code, *result, "ncclCommSplit");
}

void NcclCommunication::goesWithoutBuffers() {
  if (std::exchange(saidWithout_, true) || rank_ != 0) return;
  std::fprintf(
      stderr,
      "NCCL %d.%d takes no registered buffers: the run goes without them (2.19 and newer have them)\n",
      api_->version / 10000, api_->version / 100 % 100);
}

Status NcclCommunication::makeGroup(int color, int index, int size, bool messages,
                                    std::unique_ptr<DeviceGroup>* result) {
  if (all_ == nullptr && size > 1) return {StatusCode::internal, "communication has not been started"};
  return makeNcclGroup(*this, color, index, size, messages, result);
}

/// While somebody waits for a stream: what NCCL's own threads have learned of the other ranks.
Status NcclCommunication::watch() {
  Status status;
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return abandoned("communication between the GPUs");
    for (auto comm = comms_.begin(); comm != comms_.end() && status.ok(); ++comm) {
      int state = kSuccess;
      const int code = api_->commGetAsyncError(*comm, &state);
      if (code == kSuccess && (state == kSuccess || state == kInProgress)) continue;
      status = failed(code == kSuccess ? state : code, *comm, "communication between the GPUs");
    }
  }
  if (!status.ok()) abort();
  return status;
}

void NcclCommunication::abort() noexcept {
  if (api_ == nullptr || aborted_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  for (auto comm = comms_.rbegin(); comm != comms_.rend(); ++comm) api_->commAbort(*comm);
}

}  // namespace internevo::cuda
