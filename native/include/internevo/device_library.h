// Backends that live in shared libraries of their own and are opened only when a run asks for their device, so that the same
// programs start on machines that have nothing of it.
#pragma once

#include <memory>

#include "internevo/backend.h"

namespace internevo {

/// What such a library is asked for.
struct DeviceRequest {
  int localRank = 0;          ///< of the ranks of this host: takes the device of that number, counted round
  bool deterministic = true;  ///< the bits of a call are a function of its arguments
};

/// The backend of this host's NVIDIA GPU. The library is libinternevo-cuda.so: the file that INTERNEVO_CUDA_LIBRARY names, else
/// ../lib of the program's folder, else its own folder.
/// Errors: badConfig naming the library or the device that is missing, and what to do.
Status openCudaBackend(const DeviceRequest& request, std::unique_ptr<Backend>* result);

/// What plans need to know of that backend; needs neither the library nor a GPU.
const BackendSizes& cudaBackendSizes() noexcept;

// ---- the library's side -------------------------------------------------------------------------------------------

/// Changes whenever an interface that crosses the border does: programs and libraries of different builds refuse one another.
constexpr int kDeviceInterface = 8;

/// The entry point `internevo_device_open_1` of a library. On failure writes a text to message and returns the code's number.
/// On success *backend is the caller's to delete.
struct DeviceOpenArguments {
  int interfaceVersion = kDeviceInterface;
  DeviceRequest request;
  Backend* backend = nullptr;
  char* message = nullptr;
  int messageBytes = 0;
};
using DeviceOpen = int (*)(DeviceOpenArguments*);
constexpr const char* kDeviceOpenName = "internevo_device_open_1";

}  // namespace internevo
