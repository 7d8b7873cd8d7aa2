#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

Vec sigmoid(Vec x) {
  const Vec one = broadcast(1.f);
  return one / (one + exponential(broadcast(0.f) - x));
}

Status prepare(const char* call, SwigluShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"rows", s->rows}, {"width", s->width}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "gateStride", s->width, &s->gateStride));
  return resolveStride(call, "outputStride", s->width, &s->outputStride);
}

}  // namespace

Status CpuBackend::swigluForward(const SwigluShape& given, ConstView gate, ConstView up, View y) {
  constexpr const char* kCall = "swigluForward";
  SwigluShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"gate", gate}, {"up", up}, {"y", y}}));
  withElementType(gate.type, [&](auto tag) {
    using T = decltype(tag);
    parallelRanges(threads_, s.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const gateRow = gate.as<T>() + row * s.gateStride;
        const T* const upRow = up.as<T>() + row * s.gateStride;
        T* const yRow = y.as<T>() + row * s.outputStride;
        forVectors(s.width, [&](std::int64_t i, std::int64_t count) {
          const Vec g = loadUpTo(gateRow + i, count);
          storeUpTo(yRow + i, g * sigmoid(g) * loadUpTo(upRow + i, count), count);
        });
      }
    });
  });
  return Status::success();
}

Status CpuBackend::swigluBackward(const SwigluShape& given, ConstView gate, ConstView up, ConstView gY,
                                  View gGate, View gUp) {
  constexpr const char* kCall = "swigluBackward";
  SwigluShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(
      requireSameFloats(kCall, {{"gate", gate}, {"up", up}, {"gY", gY}, {"gGate", gGate}, {"gUp", gUp}}));
  withElementType(gate.type, [&](auto tag) {
    using T = decltype(tag);
    const Vec one = broadcast(1.f);
    parallelRanges(threads_, s.rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * s.gateStride;
        const T* const gYRow = gY.as<T>() + row * s.outputStride;
        forVectors(s.width, [&](std::int64_t i, std::int64_t count) {
          const Vec g = loadUpTo(gate.as<T>() + at + i, count), u = loadUpTo(up.as<T>() + at + i, count);
          const Vec dy = loadUpTo(gYRow + i, count);
          const Vec sig = sigmoid(g), silu = g * sig;
          storeUpTo(gGate.as<T>() + at + i, dy * u * (sig + silu * (one - sig)), count);
          storeUpTo(gUp.as<T>() + at + i, dy * silu, count);
        });
      }
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
