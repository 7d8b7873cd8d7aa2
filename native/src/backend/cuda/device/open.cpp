// The entry point of libinternevo-cuda.so.
#include <cublasLt.h>

#include "backend/cuda/backend.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/lt_products.h"
#include "backend/cuda/open_arguments.h"

namespace internevo::cuda {

namespace {

constexpr int kOldestMajor = 8;  // sm_80: bfloat16 matrix instructions, asynchronous copies

Status refused(const std::string& what) { return {StatusCode::badConfig, what}; }

std::string releaseOf(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

/// Says what is missing, as far as the runtime knows.
Status findDevice(int ordinal, cudaDeviceProp* properties) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    if (driver == 0) {
      return refused("no NVIDIA driver is installed on this host (libcuda.so.1 is missing); run where there is a GPU and "
                     "its driver (nvidia-smi lists it)");
    }
    return refused("the NVIDIA driver of this host is for CUDA " + releaseOf(driver) + ", the backend needs " +
                   releaseOf(runtime) + "; install a newer driver");
  }
  if (code != cudaSuccess || count == 0) {
    return refused(std::string("no GPU can be used on this host: ") +
                   cudaGetErrorString(code == cudaSuccess ? cudaErrorNoDevice : code) +
                   "; see what nvidia-smi lists and CUDA_VISIBLE_DEVICES hides");
  }
  if (ordinal < 0 || ordinal >= count) {
    return refused("GPU " + std::to_string(ordinal) + " is asked for and this host has " + std::to_string(count));
  }
  INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaGetDeviceProperties(properties, ordinal), "cudaGetDeviceProperties"));
  if (properties->major < kOldestMajor) {
    return refused(std::string(properties->name) + " has compute capability " + std::to_string(properties->major) + "." +
                   std::to_string(properties->minor) + "; the backend needs 8.0 or newer");
  }
  return Status::success();
}

/// An empty kernel for this device: says before the first step that the library was built without its architecture.
struct EmptyKernel {
  static constexpr int kThreads = kWarp;
  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread&) const {}
};

Status openDevice(const DeviceRequest& request, std::unique_ptr<Backend>* result) {
  cudaDeviceProp properties{};
  INTERNEVO_RETURN_IF_ERROR(findDevice(request.ordinal, &properties));
  INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(request.ordinal), "cudaSetDevice"));
  cudaFuncAttributes attributes{};
  if (const cudaError_t code = cudaFuncGetAttributes(&attributes, runKernel<EmptyKernel>); code != cudaSuccess) {
    return refused(std::string("the kernels cannot be loaded on ") + properties.name + " (compute capability " +
                   std::to_string(properties.major) + "." + std::to_string(properties.minor) + "): " +
                   cudaGetErrorString(code) + "; build with its architecture in INTERNEVO_CUDA_ARCHITECTURES");
  }
  Device device;
  cudaStream_t stream = nullptr;
  INTERNEVO_RETURN_IF_ERROR(
      cudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  device.stream = std::shared_ptr<void>(stream, [](void* made) { cudaStreamDestroy(static_cast<cudaStream_t>(made)); });
  device.queue.stream = stream;
  device.name = std::string("cuda: ") + properties.name;
  device.memory = createDeviceMemory(device.queue);
  device.synchronize = [](const Queue& queue) {
    return cudaStatus(cudaStreamSynchronize(queue.stream), "cudaStreamSynchronize");
  };
  INTERNEVO_RETURN_IF_ERROR(createLtProducts(&device.products));
  auto backend = std::make_unique<CudaBackend>(std::move(device));
  INTERNEVO_RETURN_IF_ERROR(backend->start());
  *result = std::move(backend);
  return Status::success();
}

}  // namespace

}  // namespace internevo::cuda

extern "C" __attribute__((visibility("default"))) int internevo_device_open_1(internevo::DeviceOpenArguments* arguments) {
  return internevo::cuda::answerOpen(arguments, internevo::cuda::openDevice);
}
