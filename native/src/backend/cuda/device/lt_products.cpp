#include "backend/cuda/device/lt_products.h"

#include <cublasLt.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace internevo::cuda {

namespace {

Status ltStatus(cublasStatus_t code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return Status::success();
  return {StatusCode::internal, std::string(call) + ": " + cublasLtGetStatusString(code)};
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

/// A product as the library wants it described.
struct Described {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation;
  Layout a, b, c;
};

cublasLtMatmulAlgo_t ltAlgorithm(const ProductAlgorithm& algorithm) {
  cublasLtMatmulAlgo_t result{};
  static_assert(sizeof result == sizeof algorithm.words);
  std::memcpy(&result, algorithm.words.data(), sizeof result);
  return result;
}

class LtProducts final : public ProductLibrary {
 public:
  explicit LtProducts(const std::string& device) : name_("cuBLASLt " + ltVersion() + " on " + device) {}
  ~LtProducts() override {
    described_.clear();
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  Status start() { return ltStatus(cublasLtCreate(&handle_), "cublasLtCreate"); }

  std::string name() const override { return name_; }

  Status answers(const ProductProblem& p, int most, std::vector<ProductAlgorithm>* result) override {
    Described* how = nullptr;
    INTERNEVO_RETURN_IF_ERROR(find(p, &how));
    Preference preference;
    INTERNEVO_RETURN_IF_ERROR(prefer(p, &preference));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(handle_, how->operation.handle, how->a.handle,
                                                               how->b.handle, how->c.handle, how->c.handle,
                                                               preference.handle, most, found.data(), &count);
    result->clear();
    if (code == CUBLAS_STATUS_NOT_SUPPORTED) return Status::success();
    INTERNEVO_RETURN_IF_ERROR(ltStatus(code, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& each = found[static_cast<std::size_t>(i)];
      if (each.state != CUBLAS_STATUS_SUCCESS || !fits(each, p)) continue;
      ProductAlgorithm algorithm;
      std::memcpy(algorithm.words.data(), &each.algo, sizeof each.algo);
      result->push_back(algorithm);
    }
    return Status::success();
  }

  bool computes(const ProductProblem& p, const ProductAlgorithm& algorithm) override {
    Described* how = nullptr;
    if (!find(p, &how).ok()) return false;
    const cublasLtMatmulAlgo_t algo = ltAlgorithm(algorithm);
    cublasLtMatmulHeuristicResult_t answer{};
    return cublasLtMatmulAlgoCheck(handle_, how->operation.handle, how->a.handle, how->b.handle,
                                   how->c.handle, how->c.handle, &algo, &answer) == CUBLAS_STATUS_SUCCESS &&
           answer.state == CUBLAS_STATUS_SUCCESS && fits(answer, p);
  }

  Status multiply(const Queue& queue, const ProductProblem& problem, const MatrixProduct& p,
                  const ProductAlgorithm& algorithm, void* scratch) override {
    Described* how = nullptr;
    INTERNEVO_RETURN_IF_ERROR(find(problem, &how));
    const cublasLtMatmulAlgo_t algo = ltAlgorithm(algorithm);
    const float alpha = 1.f, beta = p.accumulate ? 1.f : 0.f;
    return ltStatus(cublasLtMatmul(handle_, how->operation.handle, &alpha, p.a.data, how->a.handle, p.b.data,
                                   how->b.handle, &beta, p.c.data, how->c.handle, p.c.data, how->c.handle,
                                   &algo, scratch, static_cast<std::size_t>(problem.roomBytes), queue.stream),
                    "cublasLtMatmul");
  }

 private:
  static bool fits(const cublasLtMatmulHeuristicResult_t& answer, const ProductProblem& p) {
    return answer.workspaceSize <= static_cast<std::size_t>(p.roomBytes);
  }

  Status find(const ProductProblem& p, Described** result) {
    std::unique_ptr<Described>& place = described_[p];
    if (place == nullptr) {
      auto how = std::make_unique<Described>();
      INTERNEVO_RETURN_IF_ERROR(describe(p, how.get()));
      place = std::move(how);
    }
    *result = place.get();
    return Status::success();
  }

  static Status describe(const ProductProblem& p, Described* how) {
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
    if (const std::int32_t left = p.multiprocessors; left > 0) {
      INTERNEVO_RETURN_IF_ERROR(
          ltStatus(cublasLtMatmulDescSetAttribute(how->operation.handle, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                                  &left, sizeof left),
                   "SM_COUNT_TARGET"));
    }
    const auto layout = [](Layout* made, DataType type, std::int64_t rows, std::int64_t columns,
                           std::int64_t stride) {
      return ltStatus(
          cublasLtMatrixLayoutCreate(&made->handle, ltType(type), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "cublasLtMatrixLayoutCreate");
    };
    INTERNEVO_RETURN_IF_ERROR(
        layout(&how->a, p.type, p.transposeA ? p.k : p.m, p.transposeA ? p.m : p.k, p.lda));
    INTERNEVO_RETURN_IF_ERROR(
        layout(&how->b, p.type, p.transposeB ? p.n : p.k, p.transposeB ? p.k : p.n, p.ldb));
    return layout(&how->c, p.resultType, p.m, p.n, p.ldc);
  }

  /// Only algorithms that add parts of a sum in float32, in an order of their own.
  static Status prefer(const ProductProblem& p, Preference* preference) {
    INTERNEVO_RETURN_IF_ERROR(
        ltStatus(cublasLtMatmulPreferenceCreate(&preference->handle), "cublasLtMatmulPreferenceCreate"));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      return ltStatus(cublasLtMatmulPreferenceSetAttribute(preference->handle, name, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    INTERNEVO_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(p.roomBytes)));
    INTERNEVO_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t name, std::int64_t bytes) {
      return set(name, static_cast<std::uint32_t>(bytes));
    };
    INTERNEVO_RETURN_IF_ERROR(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignmentA));
    INTERNEVO_RETURN_IF_ERROR(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignmentB));
    INTERNEVO_RETURN_IF_ERROR(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignmentC));
    return alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignmentC);
  }

  const std::string name_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductProblem, std::unique_ptr<Described>> described_;
};

}  // namespace

std::string ltVersion() {
  const std::size_t version = cublasLtGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Status createLtProducts(const std::string& device, std::unique_ptr<ProductLibrary>* result) {
  auto products = std::make_unique<LtProducts>(device);
  INTERNEVO_RETURN_IF_ERROR(products->start());
  *result = std::move(products);
  return Status::success();
}

}  // namespace internevo::cuda
