// Runs a call of an operator on two backends and compares what it wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "internevo/backend.h"

namespace internevo::check {

/// How a tensor is stored: in the precision that is being checked, or always in one type.
enum class Kind { storage, float32, float64, int32 };

/// Made when the case runs: a list of cases is cheap.
using Values = std::function<std::vector<double>()>;

struct Tensor {
  std::string name;
  Kind kind = Kind::storage;
  Values values;
  bool output = false;
};

/// A call and its tensors; `run` gets a view of each, in their order, and a sum that is compared too.
struct Case {
  std::string name;
  std::vector<Tensor> tensors;
  std::function<std::int64_t(const Backend&)> workspaceBytes;  ///< empty: none
  std::function<Status(Backend&, const std::vector<View>&, Workspace, ExactSum*)> run;
  std::vector<std::string>
      kinds{};         ///< of attention's kernels that have this size of their own, by their names
  bool exact = false;  ///< outputs are float32, and have the CPU's bits
};

/// The case with its numbers made once: a comparison asks for them several times.
Case made(Case what);

struct Verdict {
  std::string name, precision;
  bool passed = false;
  double error = 0;  ///< largest ‖device − reference‖ / ‖reference‖ of an output
  double limit = 0;
  std::string message;  ///< of a call that failed; which output is worst
};

/// The reference is the CPU backend in float32, on inputs rounded to the precision. float32: sums may be in another order.
/// bfloat16: at most twice the CPU's own error in bfloat16 and one rounding of what goes into a product.
/// Bytes behind every tensor are checked too: a call may not touch them.
Verdict compare(const Case& what, DataType precision, Backend& cpu, Backend& device);

/// Every operator, in sizes that fit tiles and in sizes that do not. `small`: for a model of a device.
std::vector<Case> operatorCases(bool small);

struct Measured {
  std::string name;
  double seconds = 0, figure = 0;  ///< of a call; `unit` a second
  std::string unit;
  double share = 0;  ///< of the largest figure of its unit that the device itself reached here
  std::string message;
};
std::vector<Measured> productBenchmarks(Backend& device, bool small);
/// What memory bounds.
std::vector<Measured> streamBenchmarks(Backend& device, bool small);
/// Attention alone: heads of 128 and 64, grouped queries, packed documents. Forward and backward.
std::vector<Measured> attentionBenchmarks(Backend& device, bool small);

}  // namespace internevo::check
