// Tensor maps for the copy engine. The driver makes them; its library is found by the runtime, so that nothing is linked with it.
#include <cuda.h>

#include <string>

#include "backend/cuda/device/device_queue.h"
#include "backend/cuda/tensor_box.h"

namespace internevo::cuda {

namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

Status findEncode(Encode* encode) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kSince = 12000;  // CUDA 12.0 brought the call
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault, &result);
  INTERNEVO_RETURN_IF_ERROR(cudaStatus(code, "cudaGetDriverEntryPointByVersion"));
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return {StatusCode::internal,
            "the driver has no cuTensorMapEncodeTiled; install one of CUDA 12 or newer"};
  }
  *encode = reinterpret_cast<Encode>(found);
  return Status::success();
}

}  // namespace

Status makeTensorMap(const TensorBox& tensor, TensorMap* map) {
  struct Found {
    Encode encode = nullptr;
    Status status = findEncode(&encode);
  };
  static const Found found;  // once, whichever thread asks first
  INTERNEVO_RETURN_IF_ERROR(found.status);
  cuuint64_t extent[4], stride[3];
  cuuint32_t box[4];
  const cuuint32_t step[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i) {
    extent[i] = static_cast<cuuint64_t>(tensor.extent[i]), box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    if (i < 3) stride[i] = static_cast<cuuint64_t>(tensor.strideBytes[i]);
  }
  const CUresult result = found.encode(reinterpret_cast<CUtensorMap*>(map), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                       4, const_cast<void*>(tensor.data), extent, stride, box, step,
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return Status::success();
  return {StatusCode::badConfig,
          "a tensor for bulk copies: cuTensorMapEncodeTiled returns " + std::to_string(result)};
}

}  // namespace internevo::cuda
