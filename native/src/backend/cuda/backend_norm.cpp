// RMSNorm and the embedding.
#include "backend/checks.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/embedding.h"
#include "backend/cuda/kernels/norm.h"
#include "backend/cuda/launch.h"

namespace internevo::cuda {

namespace {

std::int64_t blocksOf(std::int64_t columns, std::int64_t each) { return (columns + each - 1) / each; }

/// sum[width] (float32 or bfloat16) += Σ of parts[count, width].
Status addParts(const Queue& queue, std::int64_t count, std::int64_t width, const float* parts, View sum,
                const char* call) {
  return withElementType(sum.type, [&](auto tag) {
    using G = decltype(tag);
    using Kernel = GainGradientKernel<G>;
    return launch(queue, {blocksOf(width, Kernel::kColumns), 1, 1, Kernel::kSharedBytes},
                  Kernel{count, width, parts, sum.as<G>()}, call);
  });
}

}  // namespace

Status CudaBackend::rmsNormForward(const NormShape& s, ConstView x, ConstView residual, ConstView gain,
                                   float epsilon, View sum, View y, View inverseRms) {
  constexpr const char* kCall = "rmsNormForward";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"rows", s.rows}, {"width", s.width}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  if (!residual.empty() && (residual.type != x.type || sum.empty())) {
    return badArgument(kCall, "residual", "needs the type of x, and a sum to go to");
  }
  if (!sum.empty() && sum.type != x.type) return badArgument(kCall, "sum", "must have the type of x");
  return withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.width}, {x.data, residual.data, gain.data, sum.data, y.data}, [&](auto piece) {
      using Kernel = NormKernel<decltype(piece)::value, T>;
      return launch(queue(), {blocksFor(s.rows, 1), 1, 1, Kernel::kSharedBytes},
                    Kernel{s.rows, s.width, x.as<T>(), residual.as<T>(), gain.as<T>(), epsilon, sum.as<T>(),
                           y.as<T>(), inverseRms.as<float>()},
                    kCall);
    });
  });
}

Status CudaBackend::rmsNormBackward(const NormShape& s, ConstView h, ConstView gain, ConstView inverseRms,
                                    ConstView gY, ConstView gSum, View gH, View gGain, Workspace workspace) {
  constexpr const char* kCall = "rmsNormBackward";
  INTERNEVO_RETURN_IF_ERROR(requirePositive(kCall, {{"rows", s.rows}, {"width", s.width}}));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"h", h}, {"gain", gain}, {"gY", gY}, {"gH", gH}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gGain", gGain}}));
  if (!gSum.empty() && gSum.type != h.type) return badArgument(kCall, "gSum", "must have the type of h");
  if (gH.data == gY.data || gH.data == h.data) return badArgument(kCall, "gH", "may alias only gSum");
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, normWorkspaceBytes(s)));
  const std::int64_t count = normParts(s);
  auto* const parts = static_cast<float*>(workspace.data);
  INTERNEVO_RETURN_IF_ERROR(withElementType(h.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.width}, {h.data, gain.data, gY.data, gSum.data, gH.data, parts}, [&](auto piece) {
      using Kernel = NormGradientKernel<decltype(piece)::value, T>;
      return launch(queue(), {count, 1, 1, Kernel::sharedBytes(s.width)},
                    Kernel{s.rows, s.width, h.as<T>(), gain.as<T>(), inverseRms.as<float>(), gY.as<T>(),
                           gSum.as<T>(), gH.as<T>(), parts},
                    kCall);
    });
  }));
  return addParts(queue(), count, s.width, parts, gGain, kCall);
}

namespace {

Status requireNormedHead(const char* call, const HeadNormShape& s) {
  if (s.headSize <= kLargestNormedHead) return Status::success();
  return badArgument(call, "headSize",
                     "is " + std::to_string(s.headSize) + "; a GPU normalises heads of at most " +
                         std::to_string(kLargestNormedHead));
}

HeadPlaces placesOf(const HeadNormShape& s) {
  return {s.rows * s.heads, s.heads, s.headSize, s.inputStride, s.outputStride};
}

}  // namespace

Status CudaBackend::headNormForward(const HeadNormShape& given, ConstView x, ConstView gain, float epsilon,
                                    View y, View inverseRms) {
  constexpr const char* kCall = "headNormForward";
  HeadNormShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareHeadNorm(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"y", y}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  if (y.data == x.data && s.inputStride != s.outputStride) {
    return badArgument(kCall, "y", "is x, so inputStride and outputStride must be equal");
  }
  INTERNEVO_RETURN_IF_ERROR(requireNormedHead(kCall, s));
  return withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces(
        {s.headSize, s.inputStride, s.outputStride}, {x.data, gain.data, y.data}, [&](auto piece) {
          using Kernel = HeadNormKernel<decltype(piece)::value, T>;
          return launch(
              queue(), {blocksFor(s.rows * s.heads, Kernel::kWarps)},
              Kernel{placesOf(s), x.as<T>(), gain.as<T>(), epsilon, y.as<T>(), inverseRms.as<float>()},
              kCall);
        });
  });
}

Status CudaBackend::headNormBackward(const HeadNormShape& given, ConstView x, ConstView gain,
                                     ConstView inverseRms, ConstView gY, View gX, View gGain,
                                     Workspace workspace) {
  constexpr const char* kCall = "headNormBackward";
  HeadNormShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareHeadNorm(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"x", x}, {"gain", gain}, {"gY", gY}, {"gX", gX}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloat32(kCall, {{"inverseRms", inverseRms}}));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gGain", gGain}}));
  if (gX.data == x.data) return badArgument(kCall, "gX", "may alias only gY");
  INTERNEVO_RETURN_IF_ERROR(requireNormedHead(kCall, s));
  const NormShape heads{s.rows * s.heads, s.headSize};
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, normWorkspaceBytes(heads)));
  const std::int64_t count = normParts(heads);
  auto* const parts = static_cast<float*>(workspace.data);
  INTERNEVO_RETURN_IF_ERROR(withElementType(x.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.headSize, s.inputStride, s.outputStride},
                      {x.data, gain.data, gY.data, gX.data, parts}, [&](auto piece) {
                        using Kernel = HeadNormGradientKernel<decltype(piece)::value, T>;
                        return launch(queue(), {count, 1, 1, Kernel::sharedBytes(s.headSize)},
                                      Kernel{placesOf(s), x.as<T>(), gain.as<T>(), inverseRms.as<float>(),
                                             gY.as<T>(), gX.as<T>(), parts},
                                      kCall);
                      });
  }));
  return addParts(queue(), count, s.headSize, parts, gGain, kCall);
}

Status CudaBackend::biasGradient(const BiasShape& given, ConstView gY, View gBias, Workspace workspace) {
  constexpr const char* kCall = "biasGradient";
  BiasShape s = given;
  INTERNEVO_RETURN_IF_ERROR(prepareBias(kCall, &s));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gY", gY}, {"gBias", gBias}}));
  INTERNEVO_RETURN_IF_ERROR(requireWorkspace(kCall, workspace, normWorkspaceBytes({s.rows, s.outputs})));
  const std::int64_t count = normParts({s.rows, s.outputs});
  auto* const parts = static_cast<float*>(workspace.data);
  INTERNEVO_RETURN_IF_ERROR(withElementType(gY.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.outputs, s.outputStride}, {gY.data, parts}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      using Kernel = ColumnSumsKernel<N, T>;
      return launch(queue(), {blocksOf(s.outputs, N * Kernel::kThreads), count},
                    Kernel{s.rows, s.outputs, s.outputStride, count, gY.as<T>(), parts}, kCall);
    });
  }));
  return addParts(queue(), count, s.outputs, parts, gBias, kCall);
}

// ---- embedding -----------------------------------------------------------------------------------------------------

namespace {

Status sliceOf(const char* call, const EmbeddingShape& s, ConstView tokens, TableSlice* slice) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"rows", s.rows}, {"width", s.width}, {"vocabulary", s.vocabulary}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"tokens", tokens}}));
  *slice = {s.first, s.vocabulary, s.wholeVocabulary == 0 ? s.vocabulary : s.wholeVocabulary};
  if (s.first >= 0 && s.first + s.vocabulary <= slice->whole) return Status::success();
  return badArgument(call, "first",
                     "is " + std::to_string(s.first) + "; the slice must be inside the vocabulary of " +
                         std::to_string(slice->whole));
}

}  // namespace

Status CudaBackend::embeddingForward(const EmbeddingShape& s, ConstView tokens, ConstView table, View y) {
  constexpr const char* kCall = "embeddingForward";
  TableSlice slice{};
  INTERNEVO_RETURN_IF_ERROR(sliceOf(kCall, s, tokens, &slice));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"table", table}, {"y", y}}));
  return withElementType(table.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.width}, {table.data, y.data}, [&](auto piece) {
      using Kernel = EmbeddingKernel<decltype(piece)::value, T>;
      return launch(
          queue(), {blocksFor(s.rows, 1)},
          Kernel{s.rows, s.width, slice, tokens.as<std::int32_t>(), table.as<T>(), y.as<T>(), errors()},
          kCall);
    });
  });
}

Status CudaBackend::embeddingBackward(const EmbeddingShape& s, ConstView tokens, ConstView gY, View gTable) {
  constexpr const char* kCall = "embeddingBackward";
  TableSlice slice{};
  INTERNEVO_RETURN_IF_ERROR(sliceOf(kCall, s, tokens, &slice));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gY", gY}, {"gTable", gTable}}));
  return withElementType(gY.type, [&](auto tag) {
    using T = decltype(tag);
    return withPieces({s.width}, {gY.data, gTable.data}, [&](auto piece) {
      constexpr int N = decltype(piece)::value;
      const auto start = [&](auto kernel) {
        return launch(queue(), {blocksFor(s.rows, 1), 1, 1, kernel.kSharedBytes}, kernel, kCall);
      };
      const std::int32_t* const rows = tokens.as<std::int32_t>();
      if (gTable.type == DataType::float32) {
        return start(EmbeddingGradientKernel<N, T>{s.rows, s.width, slice, rows, gY.as<T>(),
                                                   gTable.as<float>(), errors()});
      }
      return start(EmbeddingRoundedGradientKernel<N, T>{s.rows, s.width, slice, rows, gY.as<T>(),
                                                        gTable.as<Bfloat16>(), errors()});
    });
  });
}

}  // namespace internevo::cuda
