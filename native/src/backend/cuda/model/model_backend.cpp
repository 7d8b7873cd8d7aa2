#include "backend/cuda/model/model_backend.h"

#include <cstdlib>

#include "backend/cuda/attention_choice.h"
#include "backend/cuda/model/model_attention.h"
#include "backend/cuda/model/model_memory.h"
#include "backend/cuda/model/model_streams.h"

namespace internevo::cuda {

namespace {

/// cuBLASLt's meaning of its arguments, element by element.
class ModelProducts final : public MatrixProducts {
 public:
  Status multiply(const Queue& queue, const MatrixProduct& p, Workspace) override {
    return runOn(queue, "product", [p] { return compute(p); });
  }

 private:
  static Status compute(const MatrixProduct& p) {
    const model::OpenMemory open;
    const std::int64_t aRows = p.transposeA ? p.k : p.m, bRows = p.transposeB ? p.n : p.k;
    if (p.lda < aRows || p.ldb < bRows || p.ldc < p.m) {
      return {StatusCode::badConfig, "a leading dimension is shorter than a column"};
    }
    const auto at = [](const ConstView& v, std::int64_t i) {
      return v.type == DataType::float32 ? v.as<float>()[i] : floatFromBfloat16(v.as<std::uint16_t>()[i]);
    };
    for (std::int64_t column = 0; column < p.n; ++column) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        float sum = 0;
        for (std::int64_t i = 0; i < p.k; ++i) {
          const float a = at(p.a, p.transposeA ? row * p.lda + i : i * p.lda + row);
          const float b = at(p.b, p.transposeB ? i * p.ldb + column : column * p.ldb + i);
          sum = std::fma(a, b, sum);
        }
        const std::int64_t target = column * p.ldc + row;
        if (p.accumulate) sum += at(p.c, target);
        if (p.c.type == DataType::float32) {
          p.c.as<float>()[target] = sum;
        } else {
          p.c.as<std::uint16_t>()[target] = bfloat16FromFloat(sum);
        }
      }
    }
    return Status::success();
  }
};

}  // namespace

std::unique_ptr<Backend> createModelBackend(bool guarded, bool deterministic, model::LaunchTrace* trace,
                                            const OpenAttentionLibrary& library) {
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
  device.deterministic = deterministic;
  device.streams = model::createModelStreams(guarded, model::streamOrderAsked(), trace);
  device.current = std::make_unique<Current>();
  const Status made = device.streams->create(&device.current->queue);
  device.allocation = std::make_unique<Allocation>();
  device.pinned = model::createModelPinnedMemory();
  device.memory = model::createModelMemory(guarded, *device.streams, *device.current, *device.allocation,
                                           *device.pinned, trace);
  device.products = std::make_unique<ModelProducts>();
  auto backend = std::make_unique<CudaBackend>(std::move(device));
  if (!made.ok() || !backend->start().ok()) std::abort();  // a few hundred bytes of a test's memory
  return backend;
}

}  // namespace internevo::cuda
