// Which attention kernels a run asks for, and which it gets where both ours and a library's can serve. Host code without CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "internevo/status.h"

namespace internevo::cuda {

enum class AttentionChoice { best, warp, warpgroup, cudnn };

/// INTERNEVO_CUDA_ATTENTION: warp (mma.sync, sm_80 and newer), warpgroup (wgmma, sm_90a), cudnn (where it takes the shape), or unset:
/// the newest of ours that the GPU has, or cuDNN where it was measured to be faster. Errors: badConfig for anything else.
inline Status attentionAsked(AttentionChoice* choice) {
  const char* const asked = std::getenv("INTERNEVO_CUDA_ATTENTION");
  const std::string name = asked == nullptr ? "" : asked;
  if (!name.empty() && name != "warp" && name != "warpgroup" && name != "cudnn") {
    return {StatusCode::badConfig,
            "INTERNEVO_CUDA_ATTENTION is \"" + name +
                "\"; must be warp, warpgroup or cudnn, or unset for the kernels that fit the GPU best"};
  }
  *choice = name.empty()          ? AttentionChoice::best
            : name == "warp"      ? AttentionChoice::warp
            : name == "warpgroup" ? AttentionChoice::warpgroup
                                  : AttentionChoice::cudnn;
  return Status::success();
}

/// Nanoseconds of a call, of each pass by each of the two. As words, so that ranks can agree on the largest of each.
struct AttentionTimes {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  enum Word { ownForward, libraryForward, ownBackward, libraryBackward, kWords };
  std::array<std::int64_t, kWords> words{0, kNever, 0, kNever};  ///< the library can't: nobody takes it
};

/// Passes that the library is to compute.
struct AttentionServed {
  bool forward = false, backward = false;
};

/// The library has to be this much faster: what two runs measure differs by a few per cent, and their bits should not.
constexpr std::int64_t kLibraryPerCent = 97;

/// Of the slowest rank's times: a step waits for that one, and the others must compute as it does.
inline AttentionServed chosenBy(const AttentionTimes& slowest) {
  const auto faster = [&](AttentionTimes::Word library, AttentionTimes::Word own) {
    const std::int64_t l = slowest.words[library], o = slowest.words[own];
    if (l == AttentionTimes::kNever) return false;
    return o == AttentionTimes::kNever || l < o / 100 * kLibraryPerCent;
  };
  return {faster(AttentionTimes::libraryForward, AttentionTimes::ownForward),
          faster(AttentionTimes::libraryBackward, AttentionTimes::ownBackward)};
}

}  // namespace internevo::cuda
