// The machine, programs of others, and tests of the trainer's program.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "cuda/check/case.h"
#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/check/peer.h"
#include "cuda/check/runs.h"

namespace internevo::check {

namespace {

/// The value of the first line "name : value" of a file.
std::string fieldOf(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    const std::size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Json linesOf(const std::string& text) {
  Json lines = Json::array();
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// What the loader finds for a file, line by line, as ldd tells it.
Json librariesOf(const std::string& path, bool* complete) {
  const Ended told = run({"/lib64/ld-linux-x86-64.so.2", "--list", path}, 20);
  const std::string all = told.output + told.errors;
  if (all.find("not found") != std::string::npos || all.find("cannot open") != std::string::npos)
    *complete = false;
  return linesOf(all);
}

Json opened(const char* given, const char* name) {
  const std::string asked = variable(given).empty() ? name : variable(given);
  void* const library = dlopen(asked.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {{"absent", dlerror()}};
  char path[4096] = "";
  if (dlinfo(library, RTLD_DI_ORIGIN, path) != 0) path[0] = '\0';
  return std::string(path) + "/" + name;
}

std::string toolPath(const char* name) {
  std::string folders = variable("PATH");
  if (!variable("CUDA_HOME").empty()) folders += ":" + variable("CUDA_HOME") + "/bin";
  folders += ":/usr/local/cuda/bin";
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string path = folders.substr(at, end - at) + "/" + name;
    if (end > at && access(path.c_str(), X_OK) == 0) return path;
    at = end + 1;
  }
  return "";
}

}  // namespace

Outcome checkDevice(CaseRun& run) {
  run.result["device"] = run.device().name();
  run.result["memoryBytes"] = run.device().memory().occupancy().totalBytes;
  return Outcome::passed;
}

Outcome checkFacts(CaseRun& run) {
  Json& facts = run.result;
  utsname system{};
  uname(&system);
  std::string flags = fieldOf("/proc/cpuinfo", "flags"), kept;
  for (const char* const each : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if ((" " + flags + " ").find(std::string(" ") + each + " ") != std::string::npos)
      kept += (kept.empty() ? "" : " ") + std::string(each);
  }
  facts["system"] = {{"kernel", system.release},
                     {"glibc", gnu_get_libc_version()},
                     {"processor", fieldOf("/proc/cpuinfo", "model name")},
                     {"instructions", kept},
                     {"cores", std::thread::hardware_concurrency()},
                     {"memory", fieldOf("/proc/meminfo", "MemTotal")}};
  for (const char* const each : {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "INTERNEVO_CUDA_LIBRARY",
                                 "INTERNEVO_PYTHON", "OPAL_PREFIX", "PATH"}) {
    if (!variable(each).empty()) facts["environment"][each] = variable(each);
  }
  bool complete = true;
  facts["programs"]["internevo-trainer"] = librariesOf(installed(built::kTrainer), &complete);
  facts["programs"]["mpirun"] = trainer::testing::mpirunArguments(1).at(0);
  const std::string library = variable("INTERNEVO_CUDA_LIBRARY").empty()
                                  ? installed("../lib/libinternevo-cuda.so")
                                  : variable("INTERNEVO_CUDA_LIBRARY");
  facts["programs"]["libinternevo-cuda.so"] = librariesOf(library, &complete);
  facts["cudnn"] = opened("INTERNEVO_CUDNN_LIBRARY", "libcudnn.so.9"),
  facts["nccl"] = opened("INTERNEVO_NCCL_LIBRARY", "libnccl.so.2");
  for (const char* const each : {"nvidia-smi", "nvcc", "compute-sanitizer", "nsys", "python3"})
    facts["tools"][each] = toolPath(each);
  run.noteNow();
  const Peer peer(run.small(), "torch_llama.py");
  facts["torch"] = peer.absent().empty() ? Json(peer.version()) : Json{{"absent", peer.absent()}};
  facts["memoryBytes"] = run.device().memory().occupancy().totalBytes;
  if (const std::string smi = toolPath("nvidia-smi"); !smi.empty()) {
    facts["nvidiaSmi"] =
        linesOf(check::run({smi, "-q", "-d", "CLOCK,POWER,TEMPERATURE,ECC,PERFORMANCE,COMPUTE"}, 15).output);
  }
  if (!complete) run.message = "a library that a program needs is not found; see result.programs";
  return complete ? Outcome::passed : Outcome::failed;
}

Outcome checkProgramTest(CaseRun& run, const std::string& test, bool ranksShare) {
  if (!run.small()) {
    const std::string library = variable("INTERNEVO_CUDA_LIBRARY").empty()
                                    ? installed("../lib/libinternevo-cuda.so")
                                    : variable("INTERNEVO_CUDA_LIBRARY");
    setenv("INTERNEVO_CHECKED_LIBRARY", library.c_str(), 1);
  }
  if (ranksShare) {
    // To NCCL they are ranks of different hosts: messages go through sockets of this one.
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, const char*>>{{"INTERNEVO_SHARE_GPU", "1"},
                                                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                                                    {"NCCL_NVLS_ENABLE", "0"},
                                                                    {"NCCL_MNNVL_ENABLE", "0"},
                                                                    {"NCCL_IB_DISABLE", "1"},
                                                                    {"NCCL_MAX_NCHANNELS", "2"},
                                                                    {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}) {
      setenv(name, value, 1);
    }
  }
  const Ended ended = check::run(
      {installed(built::kProgramTest), "--gtest_filter=" + test, "--gtest_brief=1"}, run.leftSeconds() - 3);
  for (const std::string line : linesOf(ended.output)) {
    if (line.rfind("told: ", 0) == 0) run.result["told"].push_back(line.substr(6));
  }
  if (ended.output.find("[  PASSED  ] 1 test") != std::string::npos && ended.status == 0)
    return Outcome::passed;
  run.message = ended.status == kTimedOut ? "its time was over" : "status " + std::to_string(ended.status);
  const std::string said = ended.output + ended.errors;
  run.result["said"] = said.substr(said.size() - std::min<std::size_t>(said.size(), 6000));
  return Outcome::failed;
}

Outcome checkSanitizer(CaseRun& run, const std::string& tool) {
  const std::string sanitizer = toolPath("compute-sanitizer");
  if (sanitizer.empty())
    throw CannotRun(Outcome::absent,
                    "compute-sanitizer is not in PATH, CUDA_HOME/bin or /usr/local/cuda/bin");
  constexpr int kFound = 99;
  Outcome outcome = Outcome::passed;
  // The smallest sizes, of kernels with shared memory. racecheck does not know wgmma and bulk copies; memcheck does.
  const char* const kBulk[] = {"instructions.bulk", "instructions.wgmma-heads-64",
                               "attention.warpgroup.attention-backward-1x130x2x2x128"};
  for (const char* const name :
       {"instructions.mma", kBulk[0], kBulk[1], "attention.warp.attention-backward-1x130x2x2x128", kBulk[2],
        "operators.rmsnorm-with-residual-backward-37x96"}) {
    if (tool == "racecheck" && std::find(std::begin(kBulk), std::end(kBulk), name) != std::end(kBulk))
      continue;
    if (run.leftSeconds() < 15) {
      run.result["leftOut"].push_back(name);
      continue;
    }
    const Ended ended = check::run(
        {sanitizer, "--tool", tool, "--error-exitcode", std::to_string(kFound), "--target-processes", "all",
         installed("internevo-gpu-check"), "--case", name, "--work", run.work()},
        run.leftSeconds() - 3);
    const std::string said = ended.output + ended.errors;
    run.result["cases"].push_back(
        {{"case", name},
         {"status", ended.status},
         {"said", said.substr(said.size() - std::min<std::size_t>(said.size(), 1500))}});
    if (ended.status == kFound) outcome = Outcome::failed, run.message = tool + " found errors in " + name;
    run.noteNow();
  }
  return outcome;
}

}  // namespace internevo::check
