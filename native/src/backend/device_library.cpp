#include "internevo/device_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "backend/cuda/sizes.h"

namespace internevo {

namespace {

constexpr const char* kLibrary = "libinternevo-cuda.so";

/// Folder of the running program, with its last slash.
std::string programFolder() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string whole(path.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
  return whole.substr(0, whole.rfind('/') + 1);
}

std::string libraryPath() {
  if (const char* const given = std::getenv("INTERNEVO_CUDA_LIBRARY"); given != nullptr && *given != '\0')
    return given;
  const std::string folder = programFolder();
  for (const std::string& path : {folder + "../lib/" + kLibrary, folder + kLibrary}) {
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

Status refused(const std::string& what) { return {StatusCode::badConfig, "device cuda: " + what}; }

}  // namespace

Status openCudaBackend(const DeviceRequest& request, std::unique_ptr<Backend>* result) {
  const std::string path = libraryPath();
  if (path.empty()) {
    return refused(std::string(kLibrary) +
                   " is not beside this program: it was built without -DINTERNEVO_CUDA=ON; build it "
                   "with that, or set INTERNEVO_CUDA_LIBRARY to the library's path");
  }
  // Never closed: threads and device state of the libraries below must outlive every user.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return refused(path + " cannot be opened: " + (reason == nullptr ? "no reason given" : reason) +
                   "; install the CUDA libraries it needs, or put their folders into LD_LIBRARY_PATH");
  }
  const auto open = reinterpret_cast<DeviceOpen>(dlsym(library, kDeviceOpenName));
  if (open == nullptr) {
    return refused(path + " has no " + kDeviceOpenName +
                   ": it is of another release; build it with this program");
  }
  std::array<char, 1024> message{};
  DeviceOpenArguments arguments;
  arguments.request = request;
  arguments.message = message.data(), arguments.messageBytes = static_cast<int>(message.size());
  const int code = open(&arguments);
  if (code != 0) return {static_cast<StatusCode>(code), std::string("device cuda: ") + message.data()};
  result->reset(arguments.backend);
  return Status::success();
}

const BackendSizes& cudaBackendSizes() noexcept {
  static const cuda::Sizes sizes;
  return sizes;
}

}  // namespace internevo
