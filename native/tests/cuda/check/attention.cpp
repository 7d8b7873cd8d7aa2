// Attention's kernels of each kind, which INTERNEVO_CUDA_ATTENTION chooses when the backend is opened.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cuda/check/harness.h"
#include "internevo/device_library.h"

namespace internevo::check {

namespace {

constexpr const char* kVariable = "INTERNEVO_CUDA_ATTENTION";
constexpr const char* kOfGoal = "attention bf16, heads of 128, 16384, ";  ///< among attentionBenchmarks

struct Kernels {
  const char* name;
  const char* what;
  std::unique_ptr<Backend> backend{};
};

/// The variable as it was, whatever is opened meanwhile.
class Asked {
 public:
  Asked() : was_(std::getenv(kVariable) == nullptr ? "" : std::getenv(kVariable)) {}
  ~Asked() { was_.empty() ? unsetenv(kVariable) : setenv(kVariable, was_.c_str(), 1); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

 private:
  const std::string was_;
};

void note(const std::string& name, const Verdict& v, bool declined, nlohmann::json* report) {
  std::printf("%s %-24s %-44s error %.2e of at most %.2e  %s\n", v.passed ? "ok  " : declined ? "none" : "FAIL", name.c_str(), v.name.c_str(), v.error,
              v.limit, v.message.c_str());
  (*report)["attention"].push_back({{"kernels", name}, {"name", v.name}, {"passed", v.passed}, {"declined", declined}, {"limit", v.limit}, {"message", v.message},
                                    {"error", std::isfinite(v.error) ? nlohmann::json(v.error) : nlohmann::json()}});
}

/// cuDNN may say that a shape is not for it, or needs more scratch memory than a plan has: ours serve there.
bool declined(const Kernels& kind, const std::string& message) {
  return kind.name == std::string("cudnn") && message.find("which cannot compute attention") != std::string::npos;
}

/// What a run does before its first step: both tried on its operands, one chosen (stderr has the times).
bool checkChoice(bool small, nlohmann::json* report) {
  unsetenv(kVariable);
  std::unique_ptr<Backend> device;
  if (!openCudaBackend({}, &device).ok()) return false;
  const AttentionShape shape = small ? AttentionShape{1, 70, 2, 1, 64} : AttentionShape{1, 16384, 32, 8, 128};
  const std::int64_t wide = shape.batch * shape.sequence * shape.heads * shape.headSize, narrow = wide / shape.heads * shape.kvHeads;
  const std::int64_t scratch = device->attentionWorkspaceBytes(shape), statistics = 4 * shape.batch * shape.heads * shape.sequence;
  const std::int64_t bytes = 2 * (4 * wide + 4 * narrow) + alignUp(statistics, kAlignmentBytes) + scratch;
  void* data = nullptr;
  Status status = device->memory().allocate(bytes, &data);
  if (status.ok()) {
    const View q{data, DataType::bfloat16}, k = q.offset(wide), v = k.offset(narrow), o = v.offset(narrow), gO = o.offset(wide),
               gQ = gO.offset(wide), gK = gQ.offset(wide), gV = gK.offset(narrow);
    const View lse{gV.offset(narrow).data, DataType::float32};
    const Workspace room{lse.offset(alignUp(statistics, kAlignmentBytes) / 4).data, scratch};
    status = device->prepareAttention(shape, {q, k, v, o, lse, gO, gQ, gK, gV, room}, [](std::int64_t*, int) { return Status::success(); });
    if (status.ok()) status = device->attentionForward(shape, q, k, v, o, lse, room);
    if (status.ok()) status = device->attentionBackward(shape, q, k, v, o, lse, gO, gQ, gK, gV, room);
    if (status.ok()) status = device->settle();
    device->memory().release(data, bytes);
  }
  std::printf("%s the choice before a run  %s\n", status.ok() ? "ok  " : "FAIL", status.message().c_str());
  (*report)["attentionChoice"] = {{"passed", status.ok()}, {"message", status.message()}};
  return status.ok();
}

}  // namespace

bool checkAttention(bool small, nlohmann::json* report) {
  const Asked restored;
  Kernels kinds[] = {{"warp", "mma.sync"}, {"warpgroup", "wgmma"}, {"cudnn", "cuDNN"}};
  for (Kernels& kind : kinds) {
    setenv(kVariable, kind.name, 1);
    const Status status = openCudaBackend({}, &kind.backend);
    if (!status.ok()) std::printf("     %s is absent: %s\n", kind.what, status.message().c_str());
    (*report)["attentionKernels"][kind.what] = status.ok() ? "present" : "absent: " + status.message();
  }
  bool passed = kinds[0].backend != nullptr;  // every GPU that the backend takes has these
  const auto cpu = createCpuBackend(static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  for (const Case& each : operatorCases(small)) {
    if (each.name.rfind("attention", 0) != 0) continue;
    for (Kernels& kind : kinds) {
      if (kind.backend == nullptr) continue;
      const Verdict v = compare(each, DataType::bfloat16, *cpu, *kind.backend);
      note(std::string(kind.what) + " against the CPU", v, declined(kind, v.message), report);
      passed = passed && (v.passed || declined(kind, v.message));
      if (&kind == kinds || kinds[0].backend == nullptr) continue;
      const Verdict other = compare(each, DataType::bfloat16, *kinds[0].backend, *kind.backend);
      note(std::string(kind.what) + " against " + kinds[0].what, other, declined(kind, other.message), report);
      passed = passed && (other.passed || declined(kind, other.message));
    }
  }
  double forward = 0, backward = 0;
  for (Kernels& kind : kinds) {
    if (kind.backend == nullptr) continue;
    for (const Measured& m : attentionBenchmarks(*kind.backend, small)) {
      passed = passed && (m.message.empty() || declined(kind, m.message));
      if (m.message.empty() && m.name == kOfGoal + std::string("forward")) forward = std::max(forward, m.figure);
      if (m.message.empty() && m.name == kOfGoal + std::string("backward")) backward = std::max(backward, m.figure);
      std::printf("%-9s %-64s %10.3f ms  %8.2f %s/s  %s\n", kind.what, m.name.c_str(), 1e3 * m.seconds, m.figure, m.unit.c_str(),
                  m.message.c_str());
      (*report)["attentionTimes"].push_back({{"kernels", kind.what}, {"name", m.name}, {"seconds", m.seconds}, {"figure", m.figure},
                                             {"unit", m.unit + "/s"}, {"message", m.message}});
    }
  }
  if (!small) {
    noteGoal("attention forward, 16384 tokens", forward, 600, "TFLOP/s", report);
    noteGoal("attention backward, 16384 tokens", backward, 480, "TFLOP/s", report);
  }
  return checkChoice(small, report) && passed;
}

}  // namespace internevo::check
