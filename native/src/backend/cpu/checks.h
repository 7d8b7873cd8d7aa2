// The choice of an element type at run time, beside the checks that all backends share.
#pragma once

#include "backend/checks.h"
#include "backend/cpu/simd.h"

namespace internevo::cpu {

/// Calls body(T{}) with T = float or Bfloat16.
template <typename Body>
void withElementType(DataType type, const Body& body) {
  if (type == DataType::float32) {
    body(float{});
  } else {
    body(Bfloat16{});
  }
}

}  // namespace internevo::cpu
