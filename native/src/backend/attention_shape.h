// Checks of attention's shapes, for every backend.
#pragma once

#include "backend/checks.h"
#include "internevo/backend.h"

namespace internevo {

/// Checks sizes and replaces what is left at 0.
inline Status prepareAttention(const char* call, AttentionBlockShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"batch", s->batch},
                                                   {"sequence", s->sequence},
                                                   {"keySequence", s->keySequence},
                                                   {"heads", s->heads},
                                                   {"kvHeads", s->kvHeads},
                                                   {"headSize", s->headSize}}));
  if (s->heads % s->kvHeads != 0) {
    return badArgument(
        call, "heads",
        "is " + std::to_string(s->heads) + "; must be a multiple of kvHeads " + std::to_string(s->kvHeads));
  }
  if (s->queryPosition < 0) return badArgument(call, "queryPosition", "must not be negative");
  if (s->window < 0) {
    return badArgument(call, "window",
                       "is " + std::to_string(s->window) + "; must be 0 (no window) or a number of keys");
  }
  if (s->keyPosition < 0) return badArgument(call, "keyPosition", "must not be negative");
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "queryStride", s->heads * s->headSize, &s->queryStride));
  if (s->queryGradientStride == 0) s->queryGradientStride = s->queryStride;
  INTERNEVO_RETURN_IF_ERROR(
      resolveStride(call, "queryGradientStride", s->heads * s->headSize, &s->queryGradientStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "keyStride", s->kvHeads * s->headSize, &s->keyStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "valueStride", s->kvHeads * s->headSize, &s->valueStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "outputStride", s->heads * s->headSize, &s->outputStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "queryBatchRows", s->sequence, &s->queryBatchRows));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "keyBatchRows", s->keySequence, &s->keyBatchRows));
  return Status::success();
}

/// A whole as a piece.
inline AttentionBlockShape wholeAttention(const AttentionShape& s) {
  AttentionBlockShape whole{s};
  whole.keySequence = s.sequence;
  return whole;
}

}  // namespace internevo
