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

void note(const std::string& name, const Verdict& v, nlohmann::json* report) {
  std::printf("%s %-24s %-44s error %.2e of at most %.2e  %s\n", v.passed ? "ok  " : "FAIL", name.c_str(), v.name.c_str(), v.error,
              v.limit, v.message.c_str());
  (*report)["attention"].push_back({{"kernels", name}, {"name", v.name}, {"passed", v.passed}, {"limit", v.limit}, {"message", v.message},
                                    {"error", std::isfinite(v.error) ? nlohmann::json(v.error) : nlohmann::json()}});
}

}  // namespace

bool checkAttention(bool small, nlohmann::json* report) {
  const Asked restored;
  Kernels kinds[] = {{"warp", "mma.sync"}, {"warpgroup", "wgmma"}};
  for (Kernels& kind : kinds) {
    setenv(kVariable, kind.name, 1);
    const Status status = openCudaBackend({}, &kind.backend);
    if (!status.ok()) std::printf("     %s is left out: %s\n", kind.what, status.message().c_str());
  }
  bool passed = kinds[0].backend != nullptr;  // every GPU that the backend takes has these
  const auto cpu = createCpuBackend(static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
  for (const Case& each : operatorCases(small)) {
    if (each.name.rfind("attention", 0) != 0) continue;
    for (Kernels& kind : kinds) {
      if (kind.backend == nullptr) continue;
      const Verdict v = compare(each, DataType::bfloat16, *cpu, *kind.backend);
      note(std::string(kind.what) + " against the CPU", v, report);
      passed = passed && v.passed;
    }
    if (kinds[0].backend == nullptr || kinds[1].backend == nullptr) continue;
    const Verdict v = compare(each, DataType::bfloat16, *kinds[0].backend, *kinds[1].backend);
    note("wgmma against mma.sync", v, report);
    passed = passed && v.passed;
  }
  double forward = 0, backward = 0;
  for (Kernels& kind : kinds) {
    if (kind.backend == nullptr) continue;
    for (const Measured& m : attentionBenchmarks(*kind.backend, small)) {
      passed = passed && m.message.empty();
      if (m.name == kOfGoal + std::string("forward")) forward = std::max(forward, m.figure);
      if (m.name == kOfGoal + std::string("backward")) backward = std::max(backward, m.figure);
      std::printf("%-9s %-64s %10.3f ms  %8.2f %s/s  %s\n", kind.what, m.name.c_str(), 1e3 * m.seconds, m.figure, m.unit.c_str(),
                  m.message.c_str());
      (*report)["attentionTimes"].push_back({{"kernels", kind.what}, {"name", m.name}, {"seconds", m.seconds}, {"figure", m.figure},
                                             {"unit", m.unit + "/s"}, {"message", m.message}});
    }
  }
  if (small) return passed;
  noteGoal("attention forward, 16384 tokens", forward, 600, "TFLOP/s", report);
  noteGoal("attention backward, 16384 tokens", backward, 480, "TFLOP/s", report);
  return passed;
}

}  // namespace internevo::check
