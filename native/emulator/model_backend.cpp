#include "emulator/model_backend.h"

#include <cstdlib>

#include "backend/cuda/attention_choice.h"
#include "emulator/model_attention.h"
#include "emulator/model_memory.h"
#include "emulator/model_products.h"
#include "emulator/model_streams.h"

namespace internevo::cuda {

std::unique_ptr<Backend> createModelBackend(bool guarded, const DeviceRequest& request,
                                            model::LaunchTrace* trace, const OpenAttentionLibrary& library) {
  Device device;
  device.name = "cuda-model";
  for (const char* each : {"nvidia-driver", "cuda-driver", "cuda-runtime", "cublaslt"})
    device.libraries.push_back({each, "model"});
  const auto open = [&](std::unique_ptr<AttentionLibrary>* made) -> Status {
    if (library) return library(made);
    if (device.attentionChoice == AttentionChoice::cudnn) *made = std::make_unique<ModelAttention>();
    return Status::success();
  };
  if (!findAttentionLibrary(open, &device).ok()) std::abort();  // a test's own mistake
  device.warpgroupBlocks = device.attentionChoice == AttentionChoice::warpgroup ? 3 : 0;
  device.multiprocessors = kModelMultiprocessors;
  device.deterministic = request.deterministic;
  device.streams = model::createModelStreams(guarded, model::streamOrderAsked(), trace);
  device.current = std::make_unique<Current>();
  const Status made = device.streams->create(&device.current->queue);
  device.allocation = std::make_unique<Allocation>();
  device.pinned = model::createModelPinnedMemory();
  device.memory = model::createModelMemory(guarded, *device.streams, *device.current, *device.allocation,
                                           *device.pinned, trace);
  device.products =
      std::make_unique<MatrixProducts>(createModelProducts(modelAnswersAsked(request.localRank)));
  auto backend = std::make_unique<CudaBackend>(std::move(device));
  if (!made.ok() || !backend->start().ok()) std::abort();  // a few hundred bytes of a test's memory
  return backend;
}

}  // namespace internevo::cuda
