// Which attention kernels a run asks for. Host code without CUDA.
#pragma once

#include <cstdlib>
#include <string>

#include "internevo/status.h"

namespace internevo::cuda {

enum class AttentionChoice { best, warp, warpgroup };

/// INTERNEVO_CUDA_ATTENTION: warp (mma.sync, sm_80 and newer), warpgroup (wgmma, sm_90a), or unset: the newest that the GPU has.
/// Errors: badConfig for anything else.
inline Status attentionAsked(AttentionChoice* choice) {
  const char* const asked = std::getenv("INTERNEVO_CUDA_ATTENTION");
  const std::string name = asked == nullptr ? "" : asked;
  if (!name.empty() && name != "warp" && name != "warpgroup") {
    return {StatusCode::badConfig, "INTERNEVO_CUDA_ATTENTION is \"" + name +
                                       "\"; must be warp or warpgroup, or unset for the kernels that fit the GPU best"};
  }
  *choice = name.empty() ? AttentionChoice::best : name == "warp" ? AttentionChoice::warp : AttentionChoice::warpgroup;
  return Status::success();
}

}  // namespace internevo::cuda
