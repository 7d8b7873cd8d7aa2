// What cuDNN's attention means, on the model of a device.
#pragma once

#include <memory>

#include "backend/cuda/attention_library.h"

namespace internevo::cuda {

/// Element by element, by extents and strides alone, with more room for sums than a GPU has.
class ModelAttention : public AttentionLibrary {
 public:
  std::string name() const override { return "plain attention"; }
  std::string version() const override { return "model"; }
  Status prepare(const AttentionProblem& problem, AttentionPass pass, std::int64_t roomBytes) override;
  Status compute(const Queue& queue, const AttentionProblem& problem, AttentionPass pass,
                 const LibraryAttention& views) override;
};

}  // namespace internevo::cuda
