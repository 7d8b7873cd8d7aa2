// What backends share of the call that makes initial weights.
#pragma once

#include "backend/checks.h"
#include "internevo/backend.h"
#include "internevo/random.h"

namespace internevo {

/// Of element `index` of the slice, in the whole matrix, row by row.
INTERNEVO_ANYWHERE std::int64_t placeInWhole(const InitialShape& s, std::int64_t index) {
  return (s.firstRow + index / s.columns) * s.wholeColumns + s.firstColumn + index % s.columns;
}

inline Status checkInitial(const InitialShape& s, View target) {
  constexpr const char* kCall = "initialNormal";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      kCall, {{"elements", s.elements}, {"columns", s.columns}, {"wholeColumns", s.wholeColumns}}));
  return requireFloat32(kCall, {{"target", target}});
}

}  // namespace internevo
