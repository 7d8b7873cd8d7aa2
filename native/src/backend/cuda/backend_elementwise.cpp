// Addition, conversion, SwiGLU and rotary positions.
#include <algorithm>
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
    return withElementType(target.type, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      return withPieces({elements}, {source.data, target.data}, [&](auto piece) {
        constexpr int N = decltype(piece)::value;
        using Kernel = ConvertKernel<N, From, To, kAdd>;
        const std::int64_t pieces = elements / N;
        return launch(queue, {blocksFor(pieces, Kernel::kThreads)},
                      Kernel{pieces, source.as<From>(), target.as<To>()}, call);
      });
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
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"source", source}, {"target", target}}));
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
Status CudaBackend::ropeTable(std::int64_t positions, const RopeFrequencies& frequencies, View cosines,
                              View sines) {
  INTERNEVO_RETURN_IF_ERROR(checkRopeTable("ropeTable", positions, frequencies, cosines, sines));
  const std::int64_t pairs = frequencies.pairs(), block = 1024;
  std::vector<float> c(static_cast<std::size_t>(pairs * block)), s(c.size());
  for (std::int64_t first = 0; first < positions; first += block) {
    const std::int64_t count = smaller(block, positions - first);
    for (std::int64_t i = 0; i < count; ++i)
      frequencies.row(first + i, c.data() + i * pairs, s.data() + i * pairs);
    INTERNEVO_RETURN_IF_ERROR(
        memory().upload(cosines.offset(first * pairs).data, c.data(), 4 * count * pairs));
    INTERNEVO_RETURN_IF_ERROR(memory().upload(sines.offset(first * pairs).data, s.data(), 4 * count * pairs));
  }
  return Status::success();
}

Status CudaBackend::rotate(const char* call, RopeShape s, ConstView cosines, ConstView sines, View x,
                           float direction) {
  INTERNEVO_RETURN_IF_ERROR(prepareRope(call, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(call, {{"cosines", cosines}, {"sines", sines}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(call, {{"x", x}}));
  return withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces(
        {s.rotarySize / 2, s.headSize, s.stride}, {x.data, cosines.data, sines.data}, [&](auto piece) {
          constexpr int N = decltype(piece)::value;
          const std::int64_t piecesOfHead = s.rotarySize / 2 / N, pieces = s.rows * s.heads * piecesOfHead;
          return withIndex(std::max(pieces, s.sequence), [&](auto index) {
            using Index = decltype(index);
            using Kernel = RopeKernel<N, T, Index>;
            return launch(queue(), {blocksFor(pieces, Kernel::kThreads)},
                          Kernel{static_cast<Index>(pieces), static_cast<Index>(s.heads),
                                 static_cast<Index>(piecesOfHead), static_cast<Index>(s.sequence), s.headSize,
                                 s.rotarySize / 2, s.stride, s.positionOffset, s.positions.as<std::int32_t>(),
                                 cosines.as<float>(), sines.as<float>(), x.as<T>(), direction, errors()},
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
