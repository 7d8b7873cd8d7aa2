// The entry point of the CUDA backend's library, on the model of a device. Memory is guarded: a program that touches what would be
// the GPU's memory by itself ends. It leaves the file that INTERNEVO_MODEL_OPENED names: a run that quietly took the CPU would
// agree with the CPU's.
#include <cstdlib>
#include <fstream>

#include "backend/cuda/open_arguments.h"
#include "emulator/model_backend.h"

extern "C" int internevo_device_open_1(internevo::DeviceOpenArguments* arguments) {
  return internevo::cuda::answerOpen(arguments,
                                     [](const internevo::DeviceRequest& request,
                                        std::unique_ptr<internevo::Backend>* backend) -> internevo::Status {
                                       if (const char* const witness = std::getenv("INTERNEVO_MODEL_OPENED");
                                           witness != nullptr)
                                         std::ofstream(witness) << "opened\n";
                                       *backend = internevo::cuda::createModelBackend(true, request);
                                       return {};
                                     });
}
