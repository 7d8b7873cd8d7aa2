// What every operator's test shares: buffers in a storage type, and the four questions asked of each operator —
// is the reference's gradient its derivative, is the kernel the reference, is bfloat16 as good as a plain
// implementation in it, and do the bits stay the same whatever the number of threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "internevo/backend.h"
#include "ops/test_backend.h"

namespace internevo::test {

using Values = std::vector<double>;
using Tuple = std::vector<Values>;

inline double rounded(double value, DataType type) {
  if (type == DataType::bfloat16) return floatFromBfloat16(bfloat16FromFloat(static_cast<float>(value)));
  return type == DataType::float32 ? static_cast<double>(static_cast<float>(value)) : value;
}

/// 64-byte aligned memory with values in it; filled with NaN bits beyond them, to show reads past the end.
class Buffer {
 public:
  Buffer(DataType type, const Values& values) : type_(type), size_(values.size()) {
    bytes_ = alignUp(static_cast<std::int64_t>(size_) * bytesPerElement(type) + 256, kAlignmentBytes);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes_))));
    std::fill_n(memory_.get(), bytes_, std::byte{0xff});
    for (std::size_t i = 0; i < size_; ++i) {
      if (type == DataType::float32) view().as<float>()[i] = static_cast<float>(values[i]);
      if (type == DataType::bfloat16)
        view().as<std::uint16_t>()[i] = bfloat16FromFloat(static_cast<float>(values[i]));
    }
  }
  explicit Buffer(std::int64_t bytes)
      : Buffer(DataType::float32, Values(static_cast<std::size_t>(bytes / 4 + 1))) {}

  View view() const { return {memory_.get(), type_}; }
  Workspace workspace() const { return {memory_.get(), bytes_}; }
  Values values() const {
    Values result(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      result[i] = type_ == DataType::float32
                      ? static_cast<double>(view().as<float>()[i])
                      : static_cast<double>(floatFromBfloat16(view().as<std::uint16_t>()[i]));
    }
    return result;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  DataType type_;
  std::size_t size_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
};

inline Values randomValues(std::int64_t count, unsigned seed, double scale = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  Values result(static_cast<std::size_t>(count));
  for (double& value : result) value = normal(engine);
  return result;
}

inline Values roundedTo(Values values, DataType type) {
  for (double& value : values) value = rounded(value, type);
  return values;
}
inline Tuple roundedTo(Tuple tuple, DataType type) {
  for (Values& values : tuple) values = roundedTo(std::move(values), type);
  return tuple;
}

inline double rootMeanSquare(const Values& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}
inline double rmsError(const Values& a, const Values& b) {
  Values difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return rootMeanSquare(difference);
}

template <typename T>
std::vector<std::vector<T>> cast(const Tuple& tuple) {
  std::vector<std::vector<T>> result;
  for (const Values& values : tuple) result.emplace_back(values.begin(), values.end());
  return result;
}
template <typename T>
Tuple widened(const std::vector<std::vector<T>>& tuple) {
  Tuple result;
  for (const auto& values : tuple) result.emplace_back(values.begin(), values.end());
  return result;
}
inline Tuple zerosLike(const Tuple& tuple) {
  Tuple result;
  for (const Values& values : tuple) result.emplace_back(values.size(), 0.0);
  return result;
}

/// An operator under test has
///   Tuple inputs                 differentiable inputs
///   Tuple outputs                zeros of the outputs' sizes
///   vector<bool> accumulated     per input: its gradient is a float32 parameter gradient (+=)
///   template forward<T>(in, out), backward<T>(in, out, gOut, gIn)      the reference; gIn starts at zero
///   Status run(Backend&, in, out, gOut, gIn)   the kernel, forward then backward, on Buffers
template <typename Op, typename T>
Tuple referenceForward(const Op& op, const Tuple& inputs) {
  auto in = cast<T>(inputs);
  auto out = cast<T>(op.outputs);
  op.template forward<T>(in, out);
  return widened(out);
}
template <typename Op, typename T>
Tuple referenceBackward(const Op& op, const Tuple& inputs, const Tuple& outputs, const Tuple& gOutputs) {
  auto in = cast<T>(inputs), out = cast<T>(outputs), gOut = cast<T>(gOutputs),
       gIn = cast<T>(zerosLike(inputs));
  op.template backward<T>(in, out, gOut, gIn);
  return widened(gIn);
}

template <typename Op>
Tuple gradientsOfOutputs(const Op& op, DataType type) {
  Tuple result;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    result.push_back(roundedTo(
        randomValues(static_cast<std::int64_t>(op.outputs[i].size()), 900 + static_cast<unsigned>(i)), type));
  }
  return result;
}

/// Central differences in float64 of Σ gOut·out, at up to 40 elements of each input.
template <typename Op>
void expectReferenceIsDerivative(const Op& op) {
  const Tuple gOut = gradientsOfOutputs(op, DataType::float64);
  const auto objective = [&](const Tuple& inputs) {
    const Tuple out = referenceForward<Op, double>(op, inputs);
    double sum = 0;
    for (std::size_t t = 0; t < out.size(); ++t) {
      for (std::size_t i = 0; i < out[t].size(); ++i) sum += out[t][i] * gOut[t][i];
    }
    return sum;
  };
  const Tuple out = referenceForward<Op, double>(op, op.inputs);
  const Tuple gIn = referenceBackward<Op, double>(op, op.inputs, out, gOut);
  for (std::size_t t = 0; t < op.inputs.size(); ++t) {
    const std::size_t stride = std::max<std::size_t>(1, op.inputs[t].size() / 40);
    for (std::size_t i = 0; i < op.inputs[t].size(); i += stride) {
      constexpr double kStep = 1e-5;
      Tuple shifted = op.inputs;
      shifted[t][i] += kStep;
      const double above = objective(shifted);
      shifted[t][i] -= 2 * kStep;
      const double slope = (above - objective(shifted)) / (2 * kStep);
      ASSERT_NEAR(gIn[t][i], slope, 1e-6 * (1 + std::fabs(slope))) << "input " << t << " element " << i;
    }
  }
}

struct KernelResult {
  Tuple outputs, gradients;
};

template <typename Op>
KernelResult runKernel(const Op& op, DataType type, const Tuple& inputs, const Tuple& gOutputs, int threads) {
  std::vector<Buffer> in, out, gOut, gIn;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    in.emplace_back(type, inputs[i]);
    gIn.emplace_back(op.accumulated[i] ? DataType::float32 : type,
                     Values(inputs[i].size(), op.accumulated[i] ? 0. : 7.));
  }
  for (std::size_t i = 0; i < gOutputs.size(); ++i) {
    out.emplace_back(type, Values(gOutputs[i].size()));
    gOut.emplace_back(type, gOutputs[i]);
  }
  const auto backend = createTestBackend(threads);
  const Status status = op.run(*backend, in, out, gOut, gIn);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(backend->settle().ok());
  KernelResult result;
  for (const Buffer& b : out) result.outputs.push_back(b.values());
  for (const Buffer& b : gIn) result.gradients.push_back(b.values());
  return result;
}

/// float32 against the float64 reference, relative to the size of the tensor (for gradients that all but vanish:
/// to a hundredth of the operator's largest gradient).
template <typename Op>
void expectKernelIsReference(const Op& op, double tolerance = 2e-6) {
  const Tuple inputs = roundedTo(op.inputs, DataType::float32),
              gOut = gradientsOfOutputs(op, DataType::float32);
  const KernelResult result = runKernel(op, DataType::float32, inputs, gOut, 1);
  const Tuple out = referenceForward<Op, double>(op, inputs);
  const Tuple gIn = referenceBackward<Op, double>(op, inputs, out, gOut);
  for (std::size_t t = 0; t < out.size(); ++t) {
    EXPECT_LE(rmsError(result.outputs[t], out[t]), tolerance * rootMeanSquare(out[t])) << "output " << t;
  }
  double largest = 0;
  for (const Values& gradient : gIn) largest = std::max(largest, rootMeanSquare(gradient));
  for (std::size_t t = 0; t < gIn.size(); ++t) {
    const double size = std::max(rootMeanSquare(gIn[t]), 0.01 * largest);
    EXPECT_LE(rmsError(result.gradients[t], gIn[t]), tolerance * size) << "gradient of input " << t;
  }
}

/// bfloat16 storage: the error is at most twice that of the formula in float32, rounded on store. A gradient that is exactly 0 (a
/// query with one key) may keep the float32 rounding of sums that cancel, which come in another order.
template <typename Op>
void expectBfloat16IsAsGoodAsPlain(const Op& op) {
  constexpr DataType kType = DataType::bfloat16;
  const Tuple inputs = roundedTo(op.inputs, kType), gOut = gradientsOfOutputs(op, kType);
  const KernelResult result = runKernel(op, kType, inputs, gOut, 1);
  const Tuple exactOut = referenceForward<Op, double>(op, inputs);
  const Tuple exactGrad = referenceBackward<Op, double>(op, inputs, exactOut, gOut);
  const Tuple plainOut = roundedTo(referenceForward<Op, float>(op, inputs), kType);
  Tuple plainGrad = referenceBackward<Op, float>(op, inputs, plainOut, gOut);
  for (std::size_t t = 0; t < plainGrad.size(); ++t) {
    if (!op.accumulated[t]) plainGrad[t] = roundedTo(plainGrad[t], kType);
  }
  for (std::size_t t = 0; t < exactOut.size(); ++t) {
    EXPECT_LE(rmsError(result.outputs[t], exactOut[t]), 2 * rmsError(plainOut[t], exactOut[t]))
        << "output " << t;
  }
  const double cancelled = gOut.empty() ? 0. : 1e-6 * rootMeanSquare(gOut[0]);
  for (std::size_t t = 0; t < exactGrad.size(); ++t) {
    const double limit = std::max(2 * rmsError(plainGrad[t], exactGrad[t]), cancelled);
    EXPECT_LE(rmsError(result.gradients[t], exactGrad[t]), limit) << "gradient of input " << t;
  }
}

template <typename Op>
void expectBitsIndependentOfThreads(const Op& op) {
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Tuple inputs = roundedTo(op.inputs, type), gOut = gradientsOfOutputs(op, type);
    const KernelResult one = runKernel(op, type, inputs, gOut, 1);
    for (const int threads : {2, 3}) {
      const KernelResult many = runKernel(op, type, inputs, gOut, threads);
      EXPECT_EQ(one.outputs, many.outputs) << threads << " threads";
      EXPECT_EQ(one.gradients, many.gradients) << threads << " threads";
    }
  }
}

template <typename Op>
void expectAll(const Op& op, double tolerance = 2e-6) {
  expectReferenceIsDerivative(op);
  expectKernelIsReference(op, tolerance);
  expectBfloat16IsAsGoodAsPlain(op);
  expectBitsIndependentOfThreads(op);
}

}  // namespace internevo::test
