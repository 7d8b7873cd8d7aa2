// The model behind the entry point of the backend's library, as model_library.cpp has it, with a trace of what is given to the device.
#include "traced_library.h"

#include <memory>

#include "backend/cuda/open_arguments.h"
#include "emulator/model_backend.h"

namespace {

/// Of every backend that was opened: the last one's is asked for, and one before it may still be in use.
std::vector<std::unique_ptr<internevo::cuda::model::LaunchTrace>>& traces() {
  static std::vector<std::unique_ptr<internevo::cuda::model::LaunchTrace>> all;
  return all;
}

}  // namespace

extern "C" int internevo_device_open_1(internevo::DeviceOpenArguments* arguments) {
  return internevo::cuda::answerOpen(
      arguments,
      [](const internevo::DeviceRequest& request,
         std::unique_ptr<internevo::Backend>* backend) -> internevo::Status {
        traces().push_back(std::make_unique<internevo::cuda::model::LaunchTrace>());
        *backend = internevo::cuda::createModelBackend(true, request, traces().back().get());
        return {};
      });
}

extern "C" void internevo_model_trace(std::vector<internevo::cuda::model::LaunchStep>* steps) {
  *steps = traces().back()->steps();
}
