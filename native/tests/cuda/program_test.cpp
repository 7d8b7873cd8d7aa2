// The trainer's program with device cuda: what it says where something is missing, and whole runs on the model of a device, which
// ends a program that touches the device's memory by itself.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "../trainer/program.h"

namespace internevo::trainer::testing {
namespace {

const std::string kModelLibrary = located(built::kModelLibrary), kNcclModel = located(built::kNcclModel),
                  kOldNcclModel = located(built::kNcclModelOld);

class DeviceProgram : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    if (const char* const given = std::getenv("INTERNEVO_NCCL_LIBRARY"); given != nullptr)
      ncclOfTheMachine_ = given;
    config_.watchdog.reset();
    config_.checkpoint.reset();
    use(planOf(2, 2, false, 1, 1, 1, 1, 1));
    config_.steps = 3;
  }
  void TearDown() override {
    unsetenv("INTERNEVO_CUDA_LIBRARY"), unsetenv("CUDA_VISIBLE_DEVICES"), unsetenv("INTERNEVO_NCCL_LIBRARY");
    if (ncclOfTheMachine_) setenv("INTERNEVO_NCCL_LIBRARY", ncclOfTheMachine_->c_str(), 1);
  }

  Result runWith(const std::string& library) {
    setenv("INTERNEVO_CUDA_LIBRARY", library.c_str(), 1);
    config_.device = DeviceKind::cuda;
    const Result result = run();
    config_.device = DeviceKind::cpu;
    return result;
  }
  /// Fails where the program did not run on the model. INTERNEVO_CHECKED_LIBRARY names a library to check instead of it.
  Result runOnModel() {
    if (const char* const checked = std::getenv("INTERNEVO_CHECKED_LIBRARY"); checked != nullptr)
      return runWith(checked);
    const std::string witness = directory_.file("opened");
    fs::remove(witness);
    setenv("INTERNEVO_MODEL_OPENED", witness.c_str(), 1);
    setenv("INTERNEVO_NCCL_LIBRARY", kNcclModel.c_str(), 1);
    const Result result = runWith(kModelLibrary);
    unsetenv("INTERNEVO_MODEL_OPENED");
    EXPECT_TRUE(fs::exists(witness)) << "the model was not opened";
    return result;
  }

  /// While one lives: the answers of the model's cuBLASLt, and who of them is asked for.
  class ModelOfProducts {
   public:
    explicit ModelOfProducts(const std::string& answers, const std::string& how = "") {
      setenv("INTERNEVO_LT_MODEL", answers.c_str(), 1);
      if (!answers.empty()) setenv("INTERNEVO_LT_MODEL_CHOSEN", "1", 1);
      if (!how.empty()) setenv("INTERNEVO_CUDA_PRODUCTS", how.c_str(), 1);
    }
    ~ModelOfProducts() {
      for (const char* const name :
           {"INTERNEVO_LT_MODEL", "INTERNEVO_LT_MODEL_CHOSEN", "INTERNEVO_CUDA_PRODUCTS"})
        unsetenv(name);
    }
    ModelOfProducts(const ModelOfProducts&) = delete;
    ModelOfProducts& operator=(const ModelOfProducts&) = delete;
  };
  /// Of every product of a run.
  static void expectAnswer(const Result& result, int answer) {
    EXPECT_GE(result.named("product").size(), 12u);
    for (const Json& each : result.named("product")) {
      EXPECT_EQ(each["library"], "cuBLASLt of the model");
      EXPECT_EQ(each["answer"], answer) << each;
      EXPECT_LT(each["seconds"], each["firstSeconds"]) << each;
    }
  }

  /// Losses and the gradients of the first step, of the CPU and the model.
  struct Comparison {
    double loss = 0;      ///< largest relative difference of a step
    double gradient = 0;  ///< largest ‖a − b‖ / ‖b‖ of a tensor
  };
  Comparison compare(const Result& one, const Result& other, const std::string& oneDump,
                     const std::string& otherDump) {
    Comparison worst;
    EXPECT_EQ(one.losses().size(), other.losses().size());
    for (const auto& [step, loss] : one.losses()) {
      const double reference = other.losses().at(step);
      worst.loss = std::max(worst.loss, std::abs(loss - reference) / std::abs(reference));
    }
    const auto gradients = tensorsOf(oneDump), references = tensorsOf(otherDump);
    EXPECT_EQ(gradients.size(), references.size());
    for (const auto& [name, values] : gradients) {
      const std::vector<float>& reference = references.at(name);
      EXPECT_EQ(values.size(), reference.size()) << name;
      worst.gradient = std::max(worst.gradient, relativeError(values.data(), reference.data(),
                                                              static_cast<std::int64_t>(values.size())));
    }
    return worst;
  }

  std::optional<std::string> ncclOfTheMachine_;  ///< that the test was started with

  /// float32 differs by the order of sums only; bfloat16 is at most twice as far from float32 as the CPU's.
  void expectTheCpusRun() {
    const std::string exact = directory_.file("exact.gradients"), cpu = directory_.file("cpu.gradients"),
                      device = directory_.file("device.gradients");
    const DataType precision = config_.precision;
    config_.gradientDumpPath = cpu;
    const Result onCpu = run();
    ASSERT_EQ(onCpu.status, 0);
    config_.gradientDumpPath = device;
    const Result onModel = runOnModel();
    ASSERT_EQ(onModel.status, 0) << (onModel.named("error").empty() ? Json() : onModel.named("error")[0]);
    if (precision == DataType::float32) {
      const Comparison c = compare(onModel, onCpu, device, cpu);
      EXPECT_LT(c.loss, 1e-6);
      EXPECT_LT(c.gradient, 1e-5);
      return;
    }
    config_.precision = DataType::float32;
    config_.gradientDumpPath = exact;
    const Result reference = run();
    config_.precision = precision;
    const Comparison c = compare(onModel, reference, device, exact),
                     plain = compare(onCpu, reference, cpu, exact);
    EXPECT_GT(plain.gradient, 0);
    EXPECT_LT(c.loss, 2 * plain.loss);
    EXPECT_LT(c.gradient, 2 * plain.gradient);
  }
};

TEST_F(DeviceProgram, ALibraryThatIsNotThereIsNamed) {
  unsetenv("INTERNEVO_CUDA_LIBRARY");
  expectError(runWith(""), 2, "bad_config", "libinternevo-cuda.so is not beside this program");
  expectError(runWith("/nowhere/libinternevo-cuda.so"), 2, "bad_config",
              "/nowhere/libinternevo-cuda.so cannot be opened");
}

TEST_F(DeviceProgram, ALibraryOfSomethingElseIsRefused) {
  expectError(runWith("libm.so.6"), 2, "bad_config", "it is of another release");
}

TEST_F(DeviceProgram, HeadsThatAreTooLargeAreRefused) {
  config_.model.hiddenSize = 516, config_.model.heads = 2, config_.model.kvHeads = 1;
  expectError(runWith(kModelLibrary), 2, "plan_unsupported",
              "heads of 258; device cuda computes heads of at most 256");
}

TEST_F(DeviceProgram, SeveralRanksWithoutNcclAreTold) {
  use(planOf(2, 2, false, 2, 1, 1, 1, 1));
  setenv("INTERNEVO_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  expectError(runWith(kModelLibrary), 2, "bad_config",
              "several GPUs need NCCL, and /nowhere/libnccl.so.2 cannot be opened");
  setenv("INTERNEVO_NCCL_LIBRARY", "libm.so.6", 1);
  expectError(runWith(kModelLibrary), 2, "bad_config", "libm.so.6 has no ncclGetVersion");
}

TEST_F(DeviceProgram, AHostWithoutAGpuIsTold) {
  if (*built::kCudaLibrary == '\0') GTEST_SKIP() << "this build has no libinternevo-cuda.so";
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  const Result result = runWith(located(built::kCudaLibrary));
  ASSERT_EQ(result.named("error").size(), 1u);
  const std::string message = result.named("error")[0]["message"];
  const bool noDriver = message.find("no NVIDIA driver is installed") != std::string::npos;
  expectError(result, 2, "bad_config",
              noDriver ? "no NVIDIA driver is installed on this host" : "no GPU can be used on this host");
}

TEST_F(DeviceProgram, Float32OnTheModelIsTheCpusRun) { expectTheCpusRun(); }

/// By the host's clock a step's operations would take next to nothing: its calls return before their work is done.
TEST_F(DeviceProgram, TheTimelineOnTheModelIsOfTheDevicesClock) {
  const std::string path = directory_.file("timeline.json");
  config_.timeline = TimelineConfig{path, 2, 1, 10000};
  const Result result = runOnModel();
  ASSERT_EQ(result.status, 0);
  const std::vector<Json> steps = result.named("step");
  ASSERT_EQ(steps.size(), 3u);
  double computed = 0;
  const Json trace = Json::parse(readFile(path));
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "compute") computed += 1e-6 * event["dur"].get<double>();
  }
  const double step = steps[1]["stepTimeSeconds"];
  EXPECT_GT(computed, step / 4);
  EXPECT_LT(computed, 2 * step) << "the update that is waited for here may be of the step after";
  for (const Json& each : steps)
    EXPECT_LT(each["exposedCommunicationSeconds"].get<double>(), each["stepTimeSeconds"].get<double>() / 4)
        << "one rank waits for nobody";
}

TEST_F(DeviceProgram, RecomputationWithOverlapOnTheModelIsTheCpusRun) {
  use(planOf(1, 4, true, 1, 1, 1, 1, 1));
  config_.plan.forwardOverlap = ForwardOverlap::interLayer,
  config_.plan.backwardOverlap = BackwardOverlap::intraLayer;
  config_.model.tiedEmbeddings = true;
  expectTheCpusRun();
}

TEST_F(DeviceProgram, PackedDocumentsOnTheModelAreTheCpusRun) {
  config_.data.packing = DataConfig::Packing::documents;
  config_.data.endOfDocumentToken = 7;
  expectTheCpusRun();
}

/// Heads of 64: the kernels on matrix instructions.
class DeviceProgramInBfloat16 : public DeviceProgram {
 protected:
  void SetUp() override {
    DeviceProgram::SetUp();
    config_.precision = DataType::bfloat16;
    config_.model.hiddenSize = 128, config_.model.heads = 2, config_.model.kvHeads = 1,
    config_.model.ffnHiddenSize = 96;
    config_.model.layers = 1;
    config_.sequenceLengthTokens = 72;
    config_.steps = 2;
  }
};

TEST_F(DeviceProgramInBfloat16, OnTheModelIsAsExactAsTheCpus) { expectTheCpusRun(); }

/// Not among what gpu-check takes: a GPU's choice is its own.
TEST_F(DeviceProgramInBfloat16, WithAModelledLibrarysAttentionIsAsExactAsTheCpus) {
  setenv("INTERNEVO_CUDA_ATTENTION", "cudnn", 1);
  expectTheCpusRun();
  ASSERT_EQ(runOnModel().status, 0);
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  std::ifstream said(directory_.file("stderr"));
  const std::string text{std::istreambuf_iterator<char>(said), {}};
  EXPECT_NE(text.find("attention of 2 x 72 tokens, 2 heads of 64, 1 of keys: forward plain attention"),
            std::string::npos)
      << text;
}

TEST_F(DeviceProgram, ACheckpointOfTheModelGoesOnWithTheSameBitsAndOnTheCpu) {
  config_.checkpoint = CheckpointConfig{directory_.file("ck"), 2, 3, true};
  config_.steps = 4;
  const Result whole = runOnModel();
  ASSERT_EQ(whole.status, 0);
  const auto last = shards(4);
  fs::remove_all(checkpointPath(4));
  const Result resumed = runOnModel();
  ASSERT_EQ(resumed.status, 0);
  EXPECT_EQ(resumed.named("started")[0]["resumedFromStep"], 2);
  EXPECT_EQ(shards(4), last);
  fs::remove_all(checkpointPath(4));
  const Result onCpu = run();
  ASSERT_EQ(onCpu.status, 0);
  EXPECT_EQ(onCpu.named("started")[0]["resumedFromStep"], 2);
  for (const auto& [step, loss] : onCpu.losses()) EXPECT_NEAR(loss, whole.losses().at(step), 1e-5 * loss);
}

/// The files of a run that ended there: nothing came after its last checkpoint.
TEST_F(DeviceProgram, ACheckpointCopiedBesideTheNextStepHoldsTheWeightsOfItsStep) {
  const ModelOfProducts products("", "first");  // several runs have the same bits
  use(planOf(2, 2, false, 1, 1, 1, 1, 1));
  std::map<int, std::map<std::string, std::string>> ended;
  for (const int steps : {1, 2}) {
    config_.checkpoint = CheckpointConfig{directory_.file("ended-" + std::to_string(steps)), 10, 3, true};
    config_.steps = steps;
    ASSERT_EQ(runOnModel().status, 0);
    ended[steps] = shards(steps);
    ASSERT_FALSE(ended[steps].empty());
  }
  EXPECT_NE(ended[1], ended[2]);
  config_.steps = 3;
  for (const char* const order : {"first", "last", "mixed"}) {
    setenv("INTERNEVO_MODEL_STREAMS", order, 1);
    config_.checkpoint = CheckpointConfig{directory_.file(order), 1, 3, true};
    const Result result = runOnModel();
    unsetenv("INTERNEVO_MODEL_STREAMS");
    ASSERT_EQ(result.status, 0) << Json(result.named("error"));
    for (const int step : {1, 2}) EXPECT_EQ(shards(step), ended[step]) << order << ": step " << step;
  }
}

// ---- who computes products ----------------------------------------------------------------------------------------------

TEST_F(DeviceProgram, ProductsThatWereChosenAreTakenAgainWhenTheRunGoesOn) {
  config_.checkpoint = CheckpointConfig{directory_.file("ck"), 2, 3, true};
  config_.steps = 4;
  const std::string recorded = config_.checkpoint->directory + "/products.json";
  Result whole;
  {
    const ModelOfProducts products("90000,20000,50000");
    whole = runOnModel();
  }
  ASSERT_EQ(whole.status, 0) << Json(whole.named("error"));
  expectAnswer(whole, 1);
  EXPECT_TRUE(fs::exists(recorded));
  const auto last = shards(4);
  const std::string kept = readFile(recorded);
  // Today another answer is faster. Its bits are others: see the run that begins anew.
  const ModelOfProducts products("90000,50000,20000");
  fs::remove_all(checkpointPath(4));
  const Result resumed = runOnModel();
  ASSERT_EQ(resumed.status, 0) << Json(resumed.named("error"));
  EXPECT_EQ(resumed.named("started")[0]["resumedFromStep"], 2);
  for (const Json& each : resumed.named("product")) EXPECT_EQ(each["recorded"], true) << each;
  EXPECT_EQ(shards(4), last);
  EXPECT_EQ(readFile(recorded), kept);

  config_.checkpoint = CheckpointConfig{directory_.file("anew"), 2, 3, true};
  const Result anew = runOnModel();
  ASSERT_EQ(anew.status, 0);
  expectAnswer(anew, 2);
  EXPECT_NE(shards(4), last);
  {
    // The file fixes them for any run.
    const ModelOfProducts fixed("90000,50000,20000", recorded);
    config_.checkpoint = CheckpointConfig{directory_.file("fixed"), 2, 3, true};
    ASSERT_EQ(runOnModel().status, 0);
    EXPECT_EQ(shards(4), last);
  }
  const ModelOfProducts missing("90000,50000,20000", directory_.file("nothing.json"));
  const Result refused = runOnModel();
  expectError(refused, 2, "bad_config", "nothing.json");
  EXPECT_EQ(refused.named("error")[0]["field"], "INTERNEVO_CUDA_PRODUCTS");
}

/// With INTERNEVO_LT_MODEL_CHOSEN the model ends a run that computes a product which nobody has chosen.
TEST_F(DeviceProgram, ProductsOfEveryKindOfPlanAreChosenAlikeOnAllRanks) {
  PlanConfig ulysses = planOf(2, 2, true, 1, 2, 1, 1, 2), tensor = planOf(2, 2, false, 1, 2, 1, 1, 1);
  tensor.tensorParallel = 2;
  // By itself the one rank would take the second answer, the other the third; the first device lacks the last one.
  const ModelOfProducts products("90000,10000,40000,x5000:90000,70000,30000,10000");
  config_.model.vocabularySize = 63;  // slices of two sizes
  // Rows of the weights begin at multiples of 64 bytes: what does not is computed by the first answer.
  config_.model.hiddenSize = 64, config_.model.heads = 4, config_.model.kvHeads = 2,
  config_.model.ffnHiddenSize = 96;
  for (const auto& [precision, gradients] :
       {std::pair{DataType::float32, DataType::float32}, std::pair{DataType::bfloat16, DataType::float32},
        std::pair{DataType::bfloat16, DataType::bfloat16}}) {
    config_.precision = precision, config_.gradientPrecision = gradients;
    for (const PlanConfig& plan :
         {planOf(1, 2, false, 2, 1, 2, 1, 1), ulysses, tensor, stagedPlan(2, 2, 1, 1, 1, 1)}) {
      use(plan);
      config_.steps = 1;
      const Result result = runOnModel();
      ASSERT_EQ(result.status, 0) << Json(result.named("error")) << readFile(directory_.file("stderr"));
      expectAnswer(result, 2);
    }
  }
}

/// The products of a plan that overlaps leave room for collectives; those of one that does not, or has no other rank, have all.
TEST_F(DeviceProgram, ProductsLeaveRoomForCommunicationWhereItRunsBesideThem) {
  const ModelOfProducts products("20000,10000");
  PlanConfig overlapped = planOf(1, 2, false, 2, 1, 2, 1, 1), alone = planOf(2, 2, false, 1, 1, 1, 1, 1);
  overlapped.forwardOverlap = alone.forwardOverlap = ForwardOverlap::interLayer;
  config_.steps = 1;
  for (const auto& [plan, shares] : {std::pair{overlapped, true}, std::pair{alone, false},
                                     std::pair{planOf(1, 2, false, 2, 1, 2, 1, 1), false}}) {
    use(plan);
    const Result result = runOnModel();
    ASSERT_EQ(result.status, 0) << Json(result.named("error"));
    expectAnswer(result, 1);
    for (const Json& each : result.named("product"))
      EXPECT_EQ(each["product"].get<std::string>().find("on 116 multiprocessors") != std::string::npos,
                shares)
          << each;
  }
}

// ---- several ranks: names begin with SeveralRanks, which native/gpu-check asks for ------------------------------------------------

/// One plan of each kind of communication, with the overlap that gives it a lane of its own.
TEST_F(DeviceProgram, SeveralRanksOnTheModelAreTheCpusRun) {
  PlanConfig sharded = planOf(1, 2, false, 2, 1, 2, 1, 1), ulysses = planOf(2, 2, true, 1, 2, 1, 1, 2),
             ring = planOf(2, 2, false, 1, 2, 2, 1, 1);
  sharded.forwardOverlap = ForwardOverlap::interLayer, sharded.backwardOverlap = BackwardOverlap::intraLayer;
  ring.contextParallel = 2, ring.forwardOverlap = ForwardOverlap::block,
  ring.backwardOverlap = BackwardOverlap::block;
  PlanConfig tensor = planOf(2, 2, false, 1, 2, 1, 1, 1);
  tensor.tensorParallel = 2;
  PlanConfig again = sharded;
  again.gateUp = GateUp::again;
  PlanConfig host = sharded, hostStages = stagedPlan(2, 2, 1, 1, 1, 1);
  host.gateUp = hostStages.gateUp = GateUp::host;
  for (const PlanConfig& plan :
       {sharded, again, host, hostStages, ulysses, ring, tensor, stagedPlan(2, 2, 1, 1, 1, 1)}) {
    use(plan);
    expectTheCpusRun();
  }
}

TEST_F(DeviceProgram, SeveralRanksOnTheModelResumeUnderAnotherPlan) {
  config_.checkpoint = CheckpointConfig{directory_.file("ck"), 2, 3, true};
  config_.steps = 4;
  use(planOf(1, 2, false, 2, 1, 2, 1, 1));
  const Result whole = runOnModel();
  ASSERT_EQ(whole.status, 0) << Json(whole.named("error"));
  const auto last = shards(4);
  fs::remove_all(checkpointPath(4));
  const Result again = runOnModel();
  ASSERT_EQ(again.status, 0);
  EXPECT_EQ(again.named("started")[0]["resumedFromStep"], 2);
  EXPECT_EQ(shards(4), last) << "the same plan goes on with the same bits";
  fs::remove_all(checkpointPath(4));
  use(stagedPlan(2, 2, 1, 1, 1, 1));
  const Result staged = runOnModel();
  ASSERT_EQ(staged.status, 0);
  EXPECT_EQ(staged.named("started")[0]["resumedFromStep"], 2);
  for (const auto& [step, loss] : staged.losses()) EXPECT_NEAR(loss, whole.losses().at(step), 1e-5 * loss);
}

/// What communicators take of a GPU shows in its free memory only: the model has none of them.
TEST_F(DeviceProgram, SeveralRanksTellWhatCommunicatorsTake) {
  use(planOf(1, 2, false, 2, 1, 2, 1, 1));
  const Result result = runOnModel();
  ASSERT_EQ(result.status, 0) << Json(result.named("error"));
  ASSERT_EQ(result.named("communicators").size(), 1u);
  const Json told = result.named("communicators")[0], lines = result.named("started")[0]["memory"];
  // The group that shards parameters, of two ranks, is the only one.
  EXPECT_EQ(told["plannedBytes"], std::int64_t{16} * 36 << 20);
  EXPECT_EQ(told["plannedBytes"], lines["communicators"]);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : lines.items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(result.named("started")[0]["plannedPeakBytes"], sum);
  std::cout << "told: communicators planned " << told["plannedBytes"] << " bytes a rank, measured "
            << told["measuredBytes"] << " on the GPU\n";
  use(planOf(2, 2, false, 1, 1, 1, 1, 1));
  const Result alone = runOnModel();
  EXPECT_TRUE(alone.named("communicators").empty());
  EXPECT_FALSE(alone.named("started")[0]["memory"].contains("communicators"));
}

/// The model ends a program that lets a communicator or memory go while ranges are registered.
TEST_F(DeviceProgram, SeveralRanksRegisterTheirBuffersAndGiveThemBack) {
  if (std::getenv("INTERNEVO_CHECKED_LIBRARY") != nullptr)
    return;  // what NCCL has registered it does not tell
  PlanConfig plan = planOf(1, 2, false, 2, 1, 2, 1, 1);
  plan.forwardOverlap = ForwardOverlap::interLayer, plan.backwardOverlap = BackwardOverlap::intraLayer;
  const PlanConfig updated = planOf(2, 2, false, 2, 1, 1, 1, 2);
  const auto count = [](const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  for (const bool windows : {false, true}) {
    for (const PlanConfig& each : {plan, updated}) {
      use(each);
      const std::string witness = directory_.file("registered");
      fs::remove(witness);
      setenv("INTERNEVO_NCCL_MODEL_REGISTERED", witness.c_str(), 1);
      if (windows) setenv("INTERNEVO_NCCL_POLICY", "zero", 1);
      const Result result = runOnModel();
      unsetenv("INTERNEVO_NCCL_MODEL_REGISTERED"), unsetenv("INTERNEVO_NCCL_POLICY");
      ASSERT_EQ(result.status, 0) << Json(result.named("error"));
      const std::string told = readFile(witness);
      EXPECT_GE(count(told, windows ? "window" : "buffer"), 4u) << told;
      EXPECT_EQ(count(told, windows ? "buffer" : "window"), 0u) << told;
      EXPECT_EQ(count(told, "gone"), count(told, "\n") / 2) << told;
    }
  }
  setenv("INTERNEVO_NCCL_LIBRARY", kOldNcclModel.c_str(), 1);
  ASSERT_EQ(runWith(kModelLibrary).status, 0);
  EXPECT_EQ(
      count(readFile(directory_.file("stderr")), "takes no registered buffers: the run goes without them"),
      1u);
}

TEST_F(DeviceProgram, SeveralRanksOnTheModelEndWhenOneIsKilledAndItIsNamed) {
  PlanConfig plan = planOf(1, 2, false, 2, 1, 2, 1, 1);
  plan.forwardOverlap = ForwardOverlap::interLayer, plan.backwardOverlap = BackwardOverlap::intraLayer;
  use(plan);
  config_.device = DeviceKind::cuda;
  config_.watchdog = WatchdogLimits{};
  config_.steps = 100000000;
  if (const char* const checked = std::getenv("INTERNEVO_CHECKED_LIBRARY"); checked != nullptr) {
    setenv("INTERNEVO_CUDA_LIBRARY", checked, 1);
  } else {
    setenv("INTERNEVO_CUDA_LIBRARY", kModelLibrary.c_str(), 1),
        setenv("INTERNEVO_NCCL_LIBRARY", kNcclModel.c_str(), 1);
  }
  const std::string abandoned = directory_.file("abandoned");
  setenv("INTERNEVO_NCCL_MODEL_ABORTED", abandoned.c_str(), 1);
  Process process(command(2), directory_.file("stderr"));
  unsetenv("INTERNEVO_NCCL_MODEL_ABORTED");
  ASSERT_TRUE(process.readUntil(
      [](const std::string& line) { return line.find("\"step\":2,") != std::string::npos; }));
  const std::vector<pid_t> ranks = process.children("internevo-trainer");
  ASSERT_EQ(ranks.size(), 2u);
  for (const pid_t pid : ranks) {
    if (readFile("/proc/" + std::to_string(pid) + "/environ").find("OMPI_COMM_WORLD_RANK=1") !=
        std::string::npos)
      kill(pid, SIGKILL);
  }
  EXPECT_NE(process.finish(), 0);
  Result result;
  result.events = eventsOf(process.lines());
  ASSERT_EQ(result.named("error").size(), 1u) << Json(result.named("error"));
  EXPECT_EQ(result.named("error")[0]["rank"], 1);
  for (const pid_t pid : ranks) EXPECT_TRUE(Process::gone(pid)) << "a rank outlived the job";
  if (std::getenv("INTERNEVO_CHECKED_LIBRARY") != nullptr) return;
  EXPECT_TRUE(fs::exists(abandoned)) << "communicators were not aborted before the end";
}

}  // namespace
}  // namespace internevo::trainer::testing
