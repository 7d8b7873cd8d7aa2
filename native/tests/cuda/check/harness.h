// Runs a call of an operator on two backends and compares what it wrote.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "internevo/backend.h"

namespace internevo::check {

/// How a tensor is stored: in the precision that is being checked, or always in one type.
enum class Kind { storage, float32, float64, int32 };

struct Tensor {
  std::string name;
  Kind kind = Kind::storage;
  std::vector<double> values;
  bool output = false;
};

/// A call and its tensors; `run` gets a view of each, in their order, and a sum that is compared too.
struct Case {
  std::string name;
  std::vector<Tensor> tensors;
  std::function<std::int64_t(const Backend&)> workspaceBytes;  ///< empty: none
  std::function<Status(Backend&, const std::vector<View>&, Workspace, ExactSum*)> run;
};

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
std::vector<Measured> benchmarks(Backend& device, bool small);
/// Attention alone: heads of 128 and 64, grouped queries, packed documents. Forward and backward.
std::vector<Measured> attentionBenchmarks(Backend& device, bool small);

/// A goal and whether it was reached, on stdout and in `goals` of the report: one that was missed is no failure of the check.
void noteGoal(const std::string& what, double value, double goal, const char* unit, nlohmann::json* report);

/// Attention's kernels that the GPU can run (mma.sync; wgmma on sm_90a), each against the CPU's operators, one against the other,
/// and timed. False where one fails; kernels that this GPU does not have are named and left out.
bool checkAttention(bool small, nlohmann::json* report);

}  // namespace internevo::check
