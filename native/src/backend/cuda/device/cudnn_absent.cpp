// In place of cudnn_attention.cpp where the build found no headers of cuDNN or of cudnn-frontend.
#include "backend/cuda/device/cudnn_attention.h"

namespace internevo::cuda {

Status openCudnnAttention(std::unique_ptr<AttentionLibrary>*) {
  return {StatusCode::badConfig,
          "this build has no cuDNN; build it where cudnn.h, cudnn_frontend.h and nvrtc.h are found "
          "(INTERNEVO_CUDNN_INCLUDE, INTERNEVO_CUDNN_FRONTEND_INCLUDE)"};
}

}  // namespace internevo::cuda
