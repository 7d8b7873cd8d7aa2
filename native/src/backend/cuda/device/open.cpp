// The entry point of libinternevo-cuda.so.
#include <fstream>
#include <string>

#include "backend/cuda/backend_attention_library.h"
#include "backend/cuda/device/architecture.h"
#include "backend/cuda/device/cudnn_attention.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/device_streams.h"
#include "backend/cuda/device/lt_products.h"
#include "backend/cuda/open_arguments.h"

namespace internevo::cuda {

namespace {

constexpr int kOldestMajor = 8;  // sm_80: bfloat16 matrix instructions, asynchronous copies

Status refused(const std::string& what) { return {StatusCode::badConfig, what}; }

std::string releaseOf(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Says what is missing, as far as the runtime knows.
Status findDevice(int localRank, int* ordinal, cudaDeviceProp* properties) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    static_cast<void>(cudaRuntimeGetVersion(&runtime));
    if (driver == 0) {
      return refused(
          "no NVIDIA driver is installed on this host (libcuda.so.1 is missing); run where there is a GPU "
          "and "
          "its driver (nvidia-smi lists it)");
    }
    return refused("the NVIDIA driver of this host is for CUDA " + releaseOf(driver) +
                   ", the backend needs " + releaseOf(runtime) + "; install a newer driver");
  }
  if (code != cudaSuccess || count == 0) {
    return refused(std::string("no GPU can be used on this host: ") +
                   cudaGetErrorString(code == cudaSuccess ? cudaErrorNoDevice : code) +
                   "; see what nvidia-smi lists and CUDA_VISIBLE_DEVICES hides");
  }
  // Where each rank is shown a GPU of its own, it is number 0 for all. NCCL refuses ranks that share one.
  *ordinal = localRank % count;
  INTERNEVO_RETURN_IF_ERROR(
      cudaStatus(cudaGetDeviceProperties(properties, *ordinal), "cudaGetDeviceProperties"));
  if (properties->major < kOldestMajor) {
    return refused(std::string(properties->name) + " has compute capability " +
                   std::to_string(properties->major) + "." + std::to_string(properties->minor) +
                   "; the backend needs 8.0 or newer");
  }
  return Status::success();
}

/// The driver's own version is in no call of CUDA's: its kernel module tells it.
std::string driverVersion() {
  std::string version;
  std::getline(std::ifstream("/sys/module/nvidia/version") >> std::ws, version);
  return version;
}

std::vector<LibraryVersion> librariesHere() {
  std::vector<LibraryVersion> found;
  if (const std::string driver = driverVersion(); !driver.empty()) found.push_back({"nvidia-driver", driver});
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess) found.push_back({"cuda-driver", releaseOf(version)});
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) found.push_back({"cuda-runtime", releaseOf(version)});
  found.push_back({"cublaslt", ltVersion()});
  return found;
}

Status openDevice(const DeviceRequest& request, std::unique_ptr<Backend>* result) {
  cudaDeviceProp properties{};
  int ordinal = 0;
  INTERNEVO_RETURN_IF_ERROR(findDevice(request.localRank, &ordinal, &properties));
  INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(ordinal), "cudaSetDevice"));
  INTERNEVO_RETURN_IF_ERROR(checkKernels(properties));
  Device device;
  device.name = std::string("cuda: ") + properties.name;
  device.libraries = librariesHere();
  device.multiprocessors = properties.multiProcessorCount;
  device.deterministic = request.deterministic;
  device.streams = createDeviceStreams();
  device.current = std::make_unique<Current>();
  INTERNEVO_RETURN_IF_ERROR(device.streams->create(&device.current->queue));
  device.allocation = std::make_unique<Allocation>();
  device.pinned = createPinnedMemory();
  device.memory = createDeviceMemory(*device.streams, *device.current, *device.allocation, *device.pinned);
  std::unique_ptr<ProductLibrary> products;
  INTERNEVO_RETURN_IF_ERROR(createLtProducts(properties.name, &products));
  device.products = std::make_unique<MatrixProducts>(std::move(products));
  INTERNEVO_RETURN_IF_ERROR(findWarpgroups(device.current->queue, properties, &device.warpgroupBlocks));
  // Before the arena is taken, so that the plan's `runtime` has what cuDNN keeps on the GPU.
  INTERNEVO_RETURN_IF_ERROR(findAttentionLibrary(openCudnnAttention, &device));
  auto backend = std::make_unique<CudaBackend>(std::move(device));
  INTERNEVO_RETURN_IF_ERROR(backend->start());
  *result = std::move(backend);
  return Status::success();
}

}  // namespace

}  // namespace internevo::cuda

extern "C" __attribute__((visibility("default"))) int internevo_device_open_1(
    internevo::DeviceOpenArguments* arguments) {
  return internevo::cuda::answerOpen(arguments, internevo::cuda::openDevice);
}
