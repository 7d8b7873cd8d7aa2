#include "backend/cuda/device/lt_products.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "backend/cuda/sizes.h"

namespace internevo::cuda {

namespace {

Status ltStatus(cublasStatus_t code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return Status::success();
  return {StatusCode::internal, std::string(call) + ": " + cublasLtGetStatusString(code)};
}

/// Alignment that a pointer has, as far as the heuristics care.
std::uint32_t alignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

cudaDataType_t ltType(DataType type) { return type == DataType::float32 ? CUDA_R_32F : CUDA_R_16BF; }

template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A product as the library wants it described, and how it is computed.
struct Prepared {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
};

/// All that the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 15>;

Key keyOf(const MatrixProduct& p, std::int64_t workspaceBytes) {
  return {p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          p.transposeA,
          p.transposeB,
          p.accumulate,
          static_cast<std::int64_t>(p.a.type),
          static_cast<std::int64_t>(p.c.type),
          alignmentOf(p.a.data),
          alignmentOf(p.b.data),
          alignmentOf(p.c.data),
          workspaceBytes};
}

std::string shapeOf(const MatrixProduct& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k);
}

class LtProducts final : public MatrixProducts {
 public:
  ~LtProducts() override {
    prepared_.clear();
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  Status start() { return ltStatus(cublasLtCreate(&handle_), "cublasLtCreate"); }

  Status multiply(const Queue& queue, const MatrixProduct& p, Workspace workspace) override {
    if (p.a.type != p.b.type || (p.a.type == DataType::float32 && p.c.type != DataType::float32)) {
      return {StatusCode::badConfig,
              "a product of float32 has a float32 result, and both sides are of one type"};
    }
    const std::int64_t room = std::min(workspace.bytes, kMatrixWorkspaceBytes);
    Prepared* how = nullptr;
    INTERNEVO_RETURN_IF_ERROR(prepare(p, room, &how));
    const float alpha = 1.f, beta = p.accumulate ? 1.f : 0.f;
    return ltStatus(
        cublasLtMatmul(handle_, how->operation.handle, &alpha, p.a.data, how->a.handle, p.b.data,
                       how->b.handle, &beta, p.c.data, how->c.handle, p.c.data, how->c.handle,
                       &how->algorithm, workspace.data, static_cast<std::size_t>(room), queue.stream),
        "cublasLtMatmul");
  }

 private:
  Status prepare(const MatrixProduct& p, std::int64_t room, Prepared** result) {
    const Key key = keyOf(p, room);
    if (const auto found = prepared_.find(key); found != prepared_.end()) {
      *result = found->second.get();
      return Status::success();
    }
    auto how = std::make_unique<Prepared>();
    INTERNEVO_RETURN_IF_ERROR(describe(p, how.get()));
    INTERNEVO_RETURN_IF_ERROR(choose(p, room, how.get()));
    *result = prepared_.emplace(key, std::move(how)).first->second.get();
    return Status::success();
  }

  static Status describe(const MatrixProduct& p, Prepared* how) {
    INTERNEVO_RETURN_IF_ERROR(
        ltStatus(cublasLtMatmulDescCreate(&how->operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate"));
    const cublasOperation_t a = p.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = p.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N;
    INTERNEVO_RETURN_IF_ERROR(ltStatus(
        cublasLtMatmulDescSetAttribute(how->operation.handle, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a),
        "TRANSA"));
    INTERNEVO_RETURN_IF_ERROR(ltStatus(
        cublasLtMatmulDescSetAttribute(how->operation.handle, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b),
        "TRANSB"));
    const auto layout = [](Layout* made, DataType type, std::int64_t rows, std::int64_t columns,
                           std::int64_t stride) {
      return ltStatus(
          cublasLtMatrixLayoutCreate(&made->handle, ltType(type), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "cublasLtMatrixLayoutCreate");
    };
    INTERNEVO_RETURN_IF_ERROR(
        layout(&how->a, p.a.type, p.transposeA ? p.k : p.m, p.transposeA ? p.m : p.k, p.lda));
    INTERNEVO_RETURN_IF_ERROR(
        layout(&how->b, p.b.type, p.transposeB ? p.n : p.k, p.transposeB ? p.k : p.n, p.ldb));
    return layout(&how->c, p.c.type, p.m, p.n, p.ldc);
  }

  /// Only algorithms that add parts of a sum in float32, in an order of their own.
  Status choose(const MatrixProduct& p, std::int64_t room, Prepared* how) {
    Preference preference;
    INTERNEVO_RETURN_IF_ERROR(
        ltStatus(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate"));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      return ltStatus(cublasLtMatmulPreferenceSetAttribute(preference.handle, name, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    INTERNEVO_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(room)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignmentOf(p.a.data)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignmentOf(p.b.data)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignmentOf(p.c.data)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignmentOf(p.c.data)));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t code =
        cublasLtMatmulAlgoGetHeuristic(handle_, how->operation.handle, how->a.handle, how->b.handle,
                                       how->c.handle, how->c.handle, preference.handle, 1, &best, &found);
    if (code != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
      return {StatusCode::internal, "cuBLASLt has no algorithm for a product of " + shapeOf(p) + ": " +
                                        cublasLtGetStatusString(code)};
    }
    how->algorithm = best.algo;
    return Status::success();
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace

Status createLtProducts(std::unique_ptr<MatrixProducts>* result) {
  auto products = std::make_unique<LtProducts>();
  INTERNEVO_RETURN_IF_ERROR(products->start());
  *result = std::move(products);
  return Status::success();
}

}  // namespace internevo::cuda
