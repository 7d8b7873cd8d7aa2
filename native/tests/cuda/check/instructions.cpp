// Kernels of one instruction each, on the GPU and on its model; and the faults that a driver has to survive.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "cuda/check/case.h"
#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/kernel_cases.h"

namespace internevo::check {

namespace {

constexpr std::int64_t kOutputBytes = 1 << 20;

cuda::RunKernelCase open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw CannotRun(Outcome::failed, path + " cannot be opened: " + dlerror());
  const auto run = reinterpret_cast<cuda::RunKernelCase>(dlsym(library, cuda::kRunKernelCaseName));
  if (run == nullptr) throw CannotRun(Outcome::failed, path + " has no " + cuda::kRunKernelCaseName);
  return run;
}

std::vector<unsigned char> bytesOf(cuda::RunKernelCase run, const std::string& name, const char* where) {
  std::vector<unsigned char> output(kOutputBytes);
  cuda::KernelCase call;
  call.name = name.c_str(), call.output = output.data(), call.outputBytes = kOutputBytes;
  if (const int code = run(&call); code != 0)
    throw CannotRun(code == 2 ? Outcome::absent : Outcome::failed, std::string(where) + ": " + call.message);
  output.resize(static_cast<std::size_t>(call.writtenBytes));
  return output;
}

std::string deviceCases(const CaseRun& run) {
  return installed(run.small() ? built::kKernelCasesModel : built::kKernelCases);
}

}  // namespace

Outcome checkInstruction(CaseRun& run, const std::string& name) {
  const auto device = bytesOf(open(deviceCases(run)), name, "the device"),
             model = bytesOf(open(installed(built::kKernelCasesModel)), name, "the model");
  std::size_t different = device.size() == model.size() ? 0 : std::max(device.size(), model.size()),
              first = 0;
  for (std::size_t i = 0; i < std::min(device.size(), model.size()); ++i) {
    if (device[i] != model[i] && different++ == 0) first = i;
  }
  run.result = {{"bytes", model.size()}, {"differentBytes", different}};
  if (different == 0) return Outcome::passed;
  run.result["firstDifference"] = first;
  run.message = std::to_string(different) + " of " + std::to_string(model.size()) +
                " bytes differ from the model's, the first at " + std::to_string(first);
  return Outcome::failed;
}

Outcome runFault(CaseRun& run, const std::string& name) {
  if (name == "killed") kill(getpid(), SIGKILL);
  if (name == "thrown") throw std::runtime_error("thrown by a case");
  if (name == "partial") {
    run.result["figure"] = 42, run.noteNow();
    std::printf("said before it hangs\n"), std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (name == "children") {
    // A grandchild of another session that outlives its parent, as a rank under mpirun might.
    if (fork() == 0) {
      setsid();
      if (fork() == 0) {
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      }
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return Outcome::passed;
  }
  if (name == "memory") {
    Status status = Status::success();
    for (std::int64_t bytes = std::int64_t{1} << 46; status.ok();) {
      void* data = nullptr;
      status = run.device().memory().allocate(bytes, &data);
    }
    return run.message = status.message(), Outcome::failed;
  }
  bytesOf(open(deviceCases(run)), name, "the device");
  return Outcome::passed;
}

}  // namespace internevo::check
