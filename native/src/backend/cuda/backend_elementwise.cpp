// Addition, conversion, SwiGLU and rotary positions.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

Status prepare(const char* call, SwigluShape* s) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(call, {{"rows", s->rows}, {"width", s->width}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "gateStride", s->width, &s->gateStride));
  return resolveStride(call, "outputStride", s->width, &s->outputStride);
}

template <bool kAdd>
Status convertElements(const Queue& queue, const char* call, std::int64_t elements, ConstView source,
                       View target) {
  return withElementType(source.type, [&](auto from) {
    return withElementType(target.type, [&](auto to) -> Status {
      using From = decltype(from);
      using To = decltype(to);
      if constexpr (kAdd && sizeof(To) == 2) {
        return {StatusCode::internal, "sums are float32"};
      } else {
        return withPieces({elements}, {source.data, target.data}, [&](auto piece) {
          constexpr int N = decltype(piece)::value;
          using Kernel = ConvertKernel<N, From, To, kAdd>;
          const std::int64_t pieces = elements / N;
          return launch(queue, {blocksFor(pieces, Kernel::kThreads)},
                        Kernel{pieces, source.as<From>(), target.as<To>()}, call);
        });
      }
    });
  });
}

}  // namespace

Status CudaBackend::add(std::int64_t elements, ConstView a, ConstView b, View y) {
  constexpr const char* kCall = "add";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"a", a}, {"b", b}, {"y", y}}));
  return withElementType(a.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({elements}, {a.data, b.data, y.data}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      using Kernel = AddKernel<N, T>;
      const std::int64_t pieces = elements / N;
      return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                    Kernel{pieces, a.as<T>(), b.as<T>(), y.as<T>()}, kCall);
    });
  });
}

Status CudaBackend::accumulate(std::int64_t elements, ConstView source, View target) {
  constexpr const char* kCall = "accumulate";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"target", target}}));
  return convertElements<true>(queue(), kCall, elements, source, target);
}

Status CudaBackend::convert(std::int64_t elements, ConstView source, View target) {
  constexpr const char* kCall = "convert";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"elements", elements}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}, {"target", target}}));
  return convertElements<false>(queue(), kCall, elements, source, target);
}

Status CudaBackend::convertRows(std::int64_t rows, std::int64_t width, ConstView source,
                                std::int64_t sourceStride, View target, std::int64_t targetStride) {
  constexpr const char* kCall = "convertRows";
  if (sourceStride == width && targetStride == width) return convert(rows * width, source, target);
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"rows", rows}, {"width", width}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(kCall, "sourceStride", width, &sourceStride));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(kCall, "targetStride", width, &targetStride));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}, {"target", target}}));
  return withElementType(source.type, [&](auto from) {
    return withElementType(target.type, [&](auto to) {
      return withPieces({width, sourceStride, targetStride}, {source.data, target.data}, [&](auto piece) {
        constexpr int N = decltype(piece)::value;
        return withIndex(rows * (width / N), [&](auto index) {
          using Index = decltype(index);
          using Kernel = ConvertRowsKernel<N, decltype(from), decltype(to), Index>;
          const std::int64_t pieces = rows * (width / N);
          return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                        Kernel{static_cast<Index>(pieces), static_cast<Index>(width / N), sourceStride,
                               targetStride, source.as<decltype(from)>(), target.as<decltype(to)>()},
                        kCall);
        });
      });
    });
  });
}

Status CudaBackend::biasAdd(const BiasShape& given, ConstView bias, View y) {
  constexpr const char* kCall = "biasAdd";
  BiasShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareBias(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"bias", bias}, {"y", y}}));
  return withElementType(y.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.outputs, s.outputStride}, {bias.data, y.data}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      const std::int64_t pieces = s.rows * (s.outputs / N);
      return withIndex(pieces, [&](auto index) {
        using Index = decltype(index);
        using Kernel = BiasKernel<N, T, Index>;
        return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                      Kernel{static_cast<Index>(pieces), static_cast<Index>(s.outputs / N), s.outputStride,
                             bias.as<T>(), y.as<T>()},
                      kCall);
      });
    });
  });
}

Status CudaBackend::swigluForward(const SwigluShape& given, ConstView gate, ConstView up, View y) {
  constexpr const char* kCall = "swigluForward";
  SwigluShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"gate", gate}, {"up", up}, {"y", y}}));
  return withElementType(gate.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.width, s.gateStride, s.outputStride}, {gate.data, up.data, y.data}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      const std::int64_t pieces = s.rows * (s.width / N);
      return withIndex(pieces, [&](auto index) {
        using Index = decltype(index);
        using Kernel = SwigluKernel<N, T, Index>;
        return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                      Kernel{static_cast<Index>(pieces), static_cast<Index>(s.width / N), s.gateStride,
                             s.outputStride, gate.as<T>(), up.as<T>(), y.as<T>()},
                      kCall);
      });
    });
  });
}

Status CudaBackend::swigluBackward(const SwigluShape& given, ConstView gate, ConstView up, ConstView gY,
                                   View gGate, View gUp) {
  constexpr const char* kCall = "swigluBackward";
  SwigluShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(
      requireSameFloats(kCall, {{"gate", gate}, {"up", up}, {"gY", gY}, {"gGate", gGate}, {"gUp", gUp}}));
  return withElementType(gate.type, [&](auto tag) {
    using T = decltype(tag);
    const auto views = {static_cast<const void*>(gate.data), up.data, gY.data,
                        static_cast<const void*>(gGate.data), static_cast<const void*>(gUp.data)};
    return withPieces({s.width, s.gateStride, s.outputStride}, views, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      const std::int64_t pieces = s.rows * (s.width / N);
      return withIndex(pieces, [&](auto index) {
        using Index = decltype(index);
        using Kernel = SwigluGradientKernel<N, T, Index>;
        return launch(
            queue(), {blocksFor(pieces, Kernel::kThreads)},
            Kernel{static_cast<Index>(pieces), static_cast<Index>(s.width / N), s.gateStride, s.outputStride,
                   gate.as<T>(), up.as<T>(), gY.as<T>(), gGate.as<T>(), gUp.as<T>()},
            kCall);
      });
    });
  });
}

// ---- rotary positions ----------------------------------------------------------------------------------------------

/// On the host in float64, as the CPU backend has it, so that both rotate by the same bits.
Status CudaBackend::ropeTable(std::int64_t positions, std::int64_t headSize, double theta, View cosines,
                              View sines) {
  constexpr const char* kCall = "ropeTable";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"positions", positions}, {"headSize", headSize}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"cosines", cosines}, {"sines", sines}}));
  if (headSize % 2 != 0) return badArgument(kCall, "headSize", "is odd; rotary positions need pairs");
  if (!(theta > 0)) return badArgument(kCall, "theta", "must be positive");
  const std::int64_t half = headSize / 2, block = 1024;
  std::vector<float> c(static_cast<std::size_t>(half * block)), s(c.size());
  for (std::int64_t first = 0; first < positions; first += block) {
    const std::int64_t count = smaller(block, positions - first);
    for (std::int64_t at = 0; at < count * half; ++at) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(at % half) / static_cast<double>(headSize));
      const double angle = static_cast<double>(first + at / half) * frequency;
      c[static_cast<std::size_t>(at)] = static_cast<float>(std::cos(angle));
      s[static_cast<std::size_t>(at)] = static_cast<float>(std::sin(angle));
    }
    INTERNEVO_RETURN_IF_ERROR(memory().upload(cosines.offset(first * half).data, c.data(), 4 * count * half));
    INTERNEVO_RETURN_IF_ERROR(memory().upload(sines.offset(first * half).data, s.data(), 4 * count * half));
  }
  return Status::success();
}

Status CudaBackend::rotate(const char* call, RopeShape s, ConstView cosines, ConstView sines, View x,
                           float direction) {
  INTERNEVO_RETURN_IF_ERROR(requirePositive(
      call, {{"rows", s.rows}, {"heads", s.heads}, {"headSize", s.headSize}, {"sequence", s.sequence}}));
  INTERNEVO_RETURN_IF_ERROR(resolveStride(call, "stride", s.heads * s.headSize, &s.stride));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"cosines", cosines}, {"sines", sines}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(call, {{"x", x}}));
  if (s.headSize % 2 != 0) return badArgument(call, "headSize", "is odd; rotary positions need pairs");
  if (s.positionOffset < 0) return badArgument(call, "positionOffset", "must not be negative");
  if (!s.positions.empty()) {
    INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"positions", s.positions}}));
    if (s.positionOffset != 0)
      return badArgument(call, "positionOffset", "must be 0 where positions are given");
  }
  return withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.headSize / 2, s.stride}, {x.data, cosines.data, sines.data}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      const std::int64_t piecesOfHead = s.headSize / 2 / N, pieces = s.rows * s.heads * piecesOfHead;
      return withIndex(std::max(pieces, s.sequence), [&](auto index) {
        using Index = decltype(index);
        using Kernel = RopeKernel<N, T, Index>;
        return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                      Kernel{static_cast<Index>(pieces), static_cast<Index>(s.heads),
                             static_cast<Index>(piecesOfHead), static_cast<Index>(s.sequence), s.headSize,
                             s.stride, s.positionOffset, s.positions.as<std::int32_t>(), cosines.as<float>(),
                             sines.as<float>(), x.as<T>(), direction, errors()},
                      call);
      });
    });
  });
}

Status CudaBackend::ropeForward(const RopeShape& s, ConstView cosines, ConstView sines, View x) {
  return rotate("ropeForward", s, cosines, sines, x, 1.f);
}

Status CudaBackend::ropeBackward(const RopeShape& s, ConstView cosines, ConstView sines, View gX) {
  return rotate("ropeBackward", s, cosines, sines, gX, -1.f);
}

}  // namespace internevo::cuda
