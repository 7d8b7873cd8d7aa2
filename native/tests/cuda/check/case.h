// A case of the check: what runs in a process of its own, within a time of its own, and leaves one line of JSON.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "internevo/backend.h"

namespace internevo::check {

using Json = nlohmann::json;

/// absent: what the case needs (PyTorch, a kind of kernels, a tool) is not on this machine.
enum class Outcome { passed, failed, absent };
const char* outcomeName(Outcome outcome);

/// Thrown by a case that cannot go on.
struct CannotRun : std::runtime_error {
  CannotRun(Outcome what, const std::string& why) : std::runtime_error(why), outcome(what) {}
  Outcome outcome;
};

class TrainerRuns;

/// What a case is given, and what it leaves.
class CaseRun {
 public:
  CaseRun(bool small, std::string work, double limitSeconds, int resultDescriptor);
  ~CaseRun();
  CaseRun(const CaseRun&) = delete;
  CaseRun& operator=(const CaseRun&) = delete;

  /// Sizes for a model of a device.
  bool small() const { return small_; }
  /// A folder for files that are worth keeping, and for what cases leave one another.
  const std::string& work() const { return work_; }
  double leftSeconds() const;
  /// The GPU's backend, opened when it is first asked for. Throws CannotRun.
  Backend& device();
  TrainerRuns& runs();

  /// What was measured. noteNow keeps it should the case be ended in what follows.
  Json result = Json::object();
  std::string message;
  void noteNow() { write(nullptr); }
  void finish(Outcome outcome) { write(outcomeName(outcome)); }

 private:
  void write(const char* outcome);

  const bool small_;
  const std::string work_;
  const double limitSeconds_;
  const int descriptor_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Backend> device_;
  std::unique_ptr<TrainerRuns> runs_;
  Json versions_ = Json::object();
};

struct CheckCase {
  std::string name, command, what;
  double plannedSeconds = 0;
  std::function<Outcome(CaseRun&)> run;
  double ownLimitSeconds = 0;  ///< 0: by the plan

  /// When a case is ended: long after its plan, and early enough for the others.
  double limitSeconds() const;
};

/// The three commands, in their order, and what each is for.
struct CheckCommand {
  const char* name;
  const char* what;
};
constexpr CheckCommand kCommands[] = {
    {"truth", "the machine; every kernel against a reference"},
    {"step", "whole steps, their kernels, and what the planner needs"},
    {"peers", "PyTorch on the same GPU; the longest sequence; ranks that share the GPU"}};
/// Seconds of a command, unless it is told otherwise.
constexpr double kCommandSeconds = 540;

/// All cases in the order in which they run. `small`: for a model of a device. `kit`: null, or one whose pieces are cases too.
std::vector<CheckCase> checkCases(bool small, const Json& kit);
/// Cases that trap, hang, die or take all memory, for tests of the driver.
std::vector<CheckCase> faultCases();

// ---- what the cases do --------------------------------------------------------------------------------------------------------

Outcome checkDevice(CaseRun& run);
Outcome checkFacts(CaseRun& run);
Outcome checkOperator(CaseRun& run, std::size_t index);
/// One of kKernelCases, on the GPU and on its model; a fault of kFaultCases runs on the GPU alone.
Outcome checkInstruction(CaseRun& run, const std::string& name);
Outcome runFault(CaseRun& run, const std::string& name);
Outcome checkAttentionKernels(CaseRun& run, const std::string& kernels, std::size_t index);
Outcome timeAttentionKernels(CaseRun& run, const std::string& kernels);
/// The same call twice gives the same bits.
Outcome checkAttentionTwice(CaseRun& run, const std::string& kernels);
Outcome checkAttentionWindow(CaseRun& run, const std::string& kernels);
Outcome checkAttentionChoice(CaseRun& run);
Outcome checkAttentionAgainstTorch(CaseRun& run, const std::string& kernels);
Outcome checkSanitizer(CaseRun& run, const std::string& tool);
/// A test of cuda_program_test on this library.
Outcome checkProgramTest(CaseRun& run, const std::string& test, bool ranksShare);
/// Ten steps of two layers with one kind of attention's kernels, against the CPU's.
Outcome checkTenSteps(CaseRun& run, const std::string& kernels);
/// Ten steps of two layers of the 7B with each kind of attention's kernels: the losses side by side.
Outcome compareTenSteps(CaseRun& run, const std::string& kernels);
/// Who computes the products of a 7B, by timing, and that it can be taken again.
Outcome checkProductChoice(CaseRun& run);
Outcome timeProducts(CaseRun& run);
Outcome timeStreams(CaseRun& run);

Outcome timeKernelsOfStep(CaseRun& run, std::int64_t sequence);
struct StepWanted {
  std::int64_t sequence = 8192, microBatches = 1;
  bool deterministic = true;
};
/// LLaMA-7B's layers, as many as fit, with as few of them recomputed as memory asks for.
Outcome timeStep(CaseRun& run, const StepWanted& wanted);

Outcome timeOurs(CaseRun& run, std::int64_t sequence);
Outcome timeTorch(CaseRun& run, std::int64_t sequence, const std::string& attention);
Outcome findLongest(CaseRun& run);
Outcome findTorchsLongest(CaseRun& run);

/// Adds a goal and whether it was reached to result.goals: one that was missed is no failure.
void noteGoal(CaseRun& run, const std::string& what, double value, double goal, const char* unit);
/// JSON has no word for a number that is not finite: null.
Json number(double value);

}  // namespace internevo::check
