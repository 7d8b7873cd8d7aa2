// The list: what runs, in the order of what it teaches, and how long it is planned to take on an H200.
#include <algorithm>
#include <cctype>

#include "cuda/check/case.h"
#include "cuda/check/harness.h"
#include "cuda/check/kit.h"
#include "cuda/kernel_cases.h"

namespace internevo::check {

namespace {

constexpr const char* kKernels[] = {"warp", "warpgroup", "cudnn"};

/// "attention, backward 1x130" -> "attention-backward-1x130".
std::string slug(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool keep = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (keep) result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!keep && !result.empty() && result.back() != '-') result += '-';
  }
  return result;
}

class List {
 public:
  explicit List(const char* command) : command_(command) {}
  void add(const std::string& name, double seconds, const std::string& what,
           std::function<Outcome(CaseRun&)> run) {
    cases.push_back({name, command_, what, seconds, std::move(run)});
  }
  std::vector<CheckCase> cases;

 private:
  const char* command_;
};

void truth(bool small, List* list) {
  list->add("facts", 6, "the machine, its libraries, and where each program finds them", checkFacts);
  for (const cuda::KernelCaseName& each : cuda::kKernelCases) {
    list->add(std::string("instructions.") + each.name, 1.5,
              std::string(each.what) + ": GPU and model, bit by bit",
              [name = std::string(each.name)](CaseRun& run) { return checkInstruction(run, name); });
  }
  const std::vector<Case> operators = operatorCases(small);
  for (std::size_t i = 0; i < operators.size(); ++i) {
    list->add("operators." + slug(operators[i].name), 2.5,
              operators[i].name + ": against the CPU, float32 and bfloat16",
              [i](CaseRun& run) { return checkOperator(run, i); });
  }
  for (const std::string kernels : kKernels) {
    for (std::size_t i = 0; i < operators.size(); ++i) {
      const std::vector<std::string>& kinds = operators[i].kinds;
      if (std::find(kinds.begin(), kinds.end(), kernels) == kinds.end()) continue;
      list->add("attention." + kernels + "." + slug(operators[i].name), 2.5,
                operators[i].name + " by " + kernels + ": against the CPU and mma.sync",
                [i, kernels](CaseRun& run) { return checkAttentionKernels(run, kernels, i); });
    }
  }
  list->add("attention.choice", 5, "which kernels a run would take, by trying them", checkAttentionChoice);
  for (const std::string kernels : kKernels) {
    list->add("attention.torch." + kernels, 15, "16384 tokens by " + kernels + " against PyTorch in float32",
              [kernels](CaseRun& run) { return checkAttentionAgainstTorch(run, kernels); });
  }
  for (const std::string kernels : kKernels) {
    list->add("twice." + kernels, 4, "attention twice: the same bits",
              [kernels](CaseRun& run) { return checkAttentionTwice(run, kernels); });
  }
  for (const std::string kernels : {"warp", "warpgroup"}) {
    list->add("window." + kernels, 4, "attention in a window: the bits of the first keys that it means",
              [kernels](CaseRun& run) { return checkAttentionWindow(run, kernels); });
  }
  for (const std::string kernels : kKernels) {
    list->add(
        "steps.7b." + kernels, 12,
        "ten steps of two layers of a 7B, attention by " + kernels + ", beside the other kernels' losses",
        [kernels](CaseRun& run) { return compareTenSteps(run, kernels); });
  }
  for (const std::string kernels : kKernels) {
    list->add("steps." + kernels, 9,
              "ten steps of two layers against the CPU's losses, attention by " + kernels,
              [kernels](CaseRun& run) { return checkTenSteps(run, kernels); });
  }
  list->add("products.choice", 6, "who computes the products of a 7B, by timing what cuBLASLt answers",
            checkProductChoice);
  list->add("benchmark.products", 8, "matrix products of a 7B", timeProducts);
  for (const std::string kernels : kKernels) {
    list->add("benchmark.attention." + kernels, 9, "attention by " + kernels,
              [kernels](CaseRun& run) { return timeAttentionKernels(run, kernels); });
  }
  list->add("benchmark.memory", 5, "what memory bounds", timeStreams);
  for (const std::string test :
       {"Float32OnTheModelIsTheCpusRun", "RecomputationWithOverlapOnTheModelIsTheCpusRun",
        "PackedDocumentsOnTheModelAreTheCpusRun", "ACheckpointOfTheModelGoesOnWithTheSameBitsAndOnTheCpu",
        "ACheckpointCopiedBesideTheNextStepHoldsTheWeightsOfItsStep",
        "TheTimelineOnTheModelIsOfTheDevicesClock"}) {
    list->add("training." + test, 6, "the trainer's program against the CPU's run",
              [test](CaseRun& run) { return checkProgramTest(run, "DeviceProgram." + test, false); });
  }
  list->add("training.OnTheModelIsAsExactAsTheCpus", 6, "bfloat16 against the CPU's run", [](CaseRun& run) {
    return checkProgramTest(run, "DeviceProgramInBfloat16.OnTheModelIsAsExactAsTheCpus", false);
  });
  for (const std::string tool : {"memcheck", "racecheck"}) {
    list->add("sanitizer." + tool, 40, "compute-sanitizer on the smallest cases",
              [tool](CaseRun& run) { return checkSanitizer(run, tool); });
  }
}

void step(List* list, std::vector<CheckCase> pieces) {
  for (const std::int64_t sequence : {8192, 16384}) {
    list->add("kernels." + std::to_string(sequence), 18, "each kernel of a 7B's step alone",
              [sequence](CaseRun& run) { return timeKernelsOfStep(run, sequence); });
  }
  const auto steps = [&](const char* name, double seconds, const std::string& what,
                         const StepWanted& wanted) {
    list->add(std::string("step.") + name, seconds, what,
              [wanted](CaseRun& run) { return timeStep(run, wanted); });
  };
  steps("8192", 55, "7B, 8192 tokens, one sequence a step", {8192, 1, true});
  steps("16384", 60, "7B, 16384 tokens, layers recomputed as memory asks for", {16384, 1, true});
  steps("8192-n8", 75, "7B, 8192 tokens, eight micro-batches", {8192, 8, true});
  steps("8192-unordered", 50, "7B, 8192 tokens, not deterministic", {8192, 1, false});
  for (CheckCase& each : pieces) list->cases.push_back(std::move(each));
}

void peers(bool small, List* list) {
  for (const std::int64_t sequence : {8192, 16384}) {
    list->add("ours." + std::to_string(sequence), 18, "eight layers of a 7B",
              [sequence](CaseRun& run) { return timeOurs(run, sequence); });
    for (const std::string attention : {"cudnn", "flash"}) {
      list->add("torch." + std::to_string(sequence) + "." + attention, 55, "the same in PyTorch, compiled",
                [=](CaseRun& run) { return timeTorch(run, sequence, attention); });
    }
  }
  list->add("longest.ours", 75, "the longest sequence that the 7B trains with; the next is refused",
            findLongest);
  for (const std::string test :
       {"AreTheCpusRun", "ResumeUnderAnotherPlan", "EndWhenOneIsKilledAndItIsNamed"}) {
    list->add("ranks." + test, 18, "two ranks that share the GPU", [test](CaseRun& run) {
      return checkProgramTest(run, "DeviceProgram.SeveralRanksOnTheModel" + test, true);
    });
  }
  list->add("ranks.communicators", 18, "memory that NCCL takes for itself, planned and measured",
            [](CaseRun& run) {
              return checkProgramTest(run, "DeviceProgram.SeveralRanksTellWhatCommunicatorsTake", true);
            });
  list->add("longest.torch", 60, "PyTorch's, by trying", findTorchsLongest);
  // The state of the GPU after all that, and of the commit: the same cases once more.
  for (const CheckCase& each : [&] {
         List again("peers");
         truth(small, &again);
         return again.cases;
       }()) {
    if (each.name == "instructions.mma" || each.name == "instructions.wgmma-inside-atom" ||
        each.name == "benchmark.products") {
      list->add("again." + each.name, each.plannedSeconds, each.what, each.run);
    }
  }
}

}  // namespace

std::vector<CheckCase> checkCases(bool small, const Json& kit) {
  std::vector<CheckCase> all;
  List lists[] = {List("truth"), List("step"), List("peers")};
  truth(small, &lists[0]), step(&lists[1], kit.is_null() ? std::vector<CheckCase>() : kitCases(kit)),
      peers(small, &lists[2]);
  for (List& list : lists) {
    for (CheckCase& each : list.cases) all.push_back(std::move(each));
  }
  return all;
}

std::vector<CheckCase> faultCases() {
  List list("faults");
  for (const std::string name :
       {"trap", "endless", "killed", "children", "memory", "thrown", "partial", "bits"}) {
    list.add("fault." + name, 1, "for tests", [name](CaseRun& run) { return runFault(run, name); });
    list.cases.back().ownLimitSeconds = 3;
  }
  return list.cases;
}

}  // namespace internevo::check
