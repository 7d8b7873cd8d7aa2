// Attention's kernels of each kind, which INTERNEVO_CUDA_ATTENTION chooses when the backend is opened.
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "cuda/check/peer.h"
#include "cuda/check/timing.h"
#include "cuda/check/verdicts.h"
#include "internevo/device_library.h"
#include "trainer/support.h"

namespace internevo::check {

namespace {

constexpr const char* kVariable = "INTERNEVO_CUDA_ATTENTION";
constexpr double kForwardGoal = 600, kBackwardGoal = 480;  ///< TFLOP/s at 16384 tokens, heads of 128

/// A backend that computes attention in one way. Throws CannotRun, absent, where this GPU or machine does not have it.
std::unique_ptr<Backend> open(const std::string& kernels) {
  setenv(kVariable, kernels.c_str(), 1);
  std::unique_ptr<Backend> backend;
  const Status status = openCudaBackend({}, &backend);
  unsetenv(kVariable);
  // mma.sync is on every GPU that the backend takes.
  if (!status.ok())
    throw CannotRun(kernels == "warp" ? Outcome::failed : Outcome::absent, kernels + ": " + status.message());
  return backend;
}

/// cuDNN may say that a shape is not for it, or needs more scratch memory than a plan has: ours serve there.
bool declined(const std::string& kernels, const std::string& message) {
  return kernels == "cudnn" && message.find("which cannot compute attention") != std::string::npos;
}

/// Operands of a whole causal attention in one allocation, and a call of both passes.
class Attention {
 public:
  Attention(Backend& device, const AttentionShape& shape)
      : device_(device),
        shape_(shape),
        wide_(shape.batch * shape.sequence * shape.heads * shape.headSize),
        narrow_(wide_ / shape.heads * shape.kvHeads),
        operands_(device.memory()) {
    q = operands_.take(wide_), k = operands_.take(narrow_), v = operands_.take(narrow_),
    gO = operands_.take(wide_);
    o = operands_.take(wide_), gQ = operands_.take(wide_), gK = operands_.take(narrow_),
    gV = operands_.take(narrow_);
    statistics = operands_.take(shape.batch * shape.heads * shape.sequence, DataType::float32);
    room = operands_.scratch(device.attentionWorkspaceBytes(shape));
  }
  /// A window, or the first key of each query, from here on.
  void see(std::int64_t window, const std::vector<std::int32_t>& firstKeys) {
    shape_.window = window, shape_.firstKeys = {};
    if (firstKeys.empty()) return;
    const auto count = static_cast<std::int64_t>(firstKeys.size());
    const View keys = operands_.take(count, DataType::int32);
    if (operands_.status.ok())
      operands_.status = device_.memory().upload(keys.data, firstKeys.data(), 4 * count);
    shape_.firstKeys = keys;
  }
  Status compute() {
    INTERNEVO_RETURN_IF_ERROR(operands_.status);
    INTERNEVO_RETURN_IF_ERROR(device_.attentionForward(shape_, q, k, v, o, statistics, room));
    INTERNEVO_RETURN_IF_ERROR(
        device_.attentionBackward(shape_, q, k, v, o, statistics, gO, gQ, gK, gV, room));
    return device_.settle();
  }
  std::int64_t elements(const View& view) const {
    return view.data == k.data || view.data == v.data || view.data == gK.data || view.data == gV.data
               ? narrow_
               : wide_;
  }
  std::vector<char> bytesOf(const View& view, Status* status) {
    std::vector<char> bytes(static_cast<std::size_t>(2 * elements(view)));
    if (status->ok())
      *status = device_.memory().download(bytes.data(), view.data, static_cast<std::int64_t>(bytes.size()));
    return bytes;
  }
  /// o and the three gradients.
  std::vector<char> results(Status* status) {
    std::vector<char> all;
    for (const View& each : {o, gQ, gK, gV}) {
      const std::vector<char> bytes = bytesOf(each, status);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  View q, k, v, gO, o, gQ, gK, gV, statistics;
  Workspace room;

 private:
  Backend& device_;
  AttentionShape shape_;
  const std::int64_t wide_, narrow_;
  Operands operands_;
};

}  // namespace

Outcome checkAttentionKernels(CaseRun& run, const std::string& kernels, std::size_t index) {
  const auto kind = open(kernels), cpu = cpuReference();
  const Case each = made(operatorCases(run.small()).at(index));
  const Verdict v = compare(each, DataType::bfloat16, *cpu, *kind);
  if (declined(kernels, v.message)) throw CannotRun(Outcome::absent, v.message);
  Outcome outcome = noteVerdict(run, v, "the CPU");
  if (kernels == "warp") return outcome;
  run.noteNow();
  const auto warp = open("warp");
  if (noteVerdict(run, compare(each, DataType::bfloat16, *warp, *kind), "mma.sync") != Outcome::passed)
    outcome = Outcome::failed;
  return outcome;
}

Outcome timeAttentionKernels(CaseRun& run, const std::string& kernels) {
  const auto kind = open(kernels);
  std::vector<Measured> times = attentionBenchmarks(*kind, run.small());
  for (Measured& each : times) {
    if (declined(kernels, each.message))
      run.result["declined"].push_back(each.name + ": " + each.message), each.message.clear(),
          each.seconds = each.figure = 0;
  }
  std::erase_if(times, [](const Measured& each) { return each.seconds == 0 && each.message.empty(); });
  const Outcome outcome = noteTimes(run, times);
  for (const Measured& each : times) {
    constexpr const char* kOfGoal = "attention bf16, heads of 128, 16384, ";
    if (each.name == kOfGoal + std::string("forward"))
      noteGoal(run, "attention forward, 16384 tokens, " + kernels, each.figure, kForwardGoal, "TFLOP/s");
    if (each.name == kOfGoal + std::string("backward"))
      noteGoal(run, "attention backward, 16384 tokens, " + kernels, each.figure, kBackwardGoal, "TFLOP/s");
  }
  return outcome;
}

Outcome checkAttentionTwice(CaseRun& run, const std::string& kernels) {
  const auto kind = open(kernels);
  const AttentionShape shape =
      run.small() ? AttentionShape{1, 200, 2, 1, 64} : AttentionShape{1, 8192, 16, 4, 128};
  Attention attention(*kind, shape);
  Status status = attention.compute();
  if (declined(kernels, status.message())) throw CannotRun(Outcome::absent, status.message());
  const std::vector<char> first = attention.results(&status);
  constexpr int kTimes = 5;
  int different = 0;
  for (int i = 1; i < kTimes && status.ok(); ++i) {
    if (status = attention.compute(); status.ok()) different += attention.results(&status) != first;
  }
  run.result = {{"calls", kTimes}, {"different", different}, {"comparedBytes", first.size()}};
  if (!status.ok()) return run.message = status.message(), Outcome::failed;
  if (different > 0)
    run.message =
        std::to_string(different) + " of " + std::to_string(kTimes - 1) + " repetitions gave other bits";
  return different == 0 ? Outcome::passed : Outcome::failed;
}

Outcome checkAttentionWindow(CaseRun& run, const std::string& kernels) {
  const auto kind = open(kernels);
  const AttentionShape shape =
      run.small() ? AttentionShape{1, 300, 2, 1, 64} : AttentionShape{1, 8192, 16, 4, 128};
  const std::int64_t window = run.small() ? 70 : 1000;
  Attention attention(*kind, shape);
  const auto results = [&](std::int64_t keys, const std::vector<std::int32_t>& firstKeys, Status* status) {
    attention.see(keys, firstKeys);
    if (status->ok()) *status = attention.compute();
    return attention.results(status);
  };
  std::vector<std::int32_t> firstKeys;
  for (std::int64_t row = 0; row < shape.sequence; ++row)
    firstKeys.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(row + 1 - window, 0)));
  Status status;
  const std::vector<char> whole = results(0, {}, &status), byWindow = results(window, {}, &status),
                          byKeys = results(0, firstKeys, &status);
  run.result = {{"window", window}, {"comparedBytes", byKeys.size()}};
  if (!status.ok()) return run.message = status.message(), Outcome::failed;
  if (byWindow == whole) return run.message = "the window hides nothing", Outcome::failed;
  if (byWindow != byKeys) return run.message = "other bits than by first keys", Outcome::failed;
  return Outcome::passed;
}

/// What a run does before its first step: both tried on its operands, one chosen (stderr has the times).
Outcome checkAttentionChoice(CaseRun& run) {
  const AttentionShape shape =
      run.small() ? AttentionShape{1, 70, 2, 1, 64} : AttentionShape{1, 16384, 32, 8, 128};
  Backend& device = run.device();
  Attention a(device, shape);
  Status status =
      device.prepareAttention(shape, {a.q, a.k, a.v, a.o, a.statistics, a.gO, a.gQ, a.gK, a.gV, a.room},
                              [](std::int64_t*, int) { return Status::success(); });
  if (status.ok()) status = a.compute();
  run.message = status.message();
  return status.ok() ? Outcome::passed : Outcome::failed;
}

Outcome checkAttentionAgainstTorch(CaseRun& run, const std::string& kernels) {
  const auto kind = open(kernels);
  const Peer peer(run.small(), "torch_attention.py");
  if (!peer.absent().empty()) throw CannotRun(Outcome::absent, peer.absent());
  const AttentionShape shape =
      run.small() ? AttentionShape{1, 130, 2, 1, 64} : AttentionShape{1, 16384, 8, 2, 128};
  Attention attention(*kind, shape);
  Status status = attention.compute();
  if (declined(kernels, status.message())) throw CannotRun(Outcome::absent, status.message());
  const trainer::testing::TemporaryDirectory folder;
  const std::pair<const char*, View> files[] = {
      {"q", attention.q}, {"k", attention.k},   {"v", attention.v},   {"gO", attention.gO},
      {"o", attention.o}, {"gQ", attention.gQ}, {"gK", attention.gK}, {"gV", attention.gV}};
  for (const auto& [name, view] : files) {
    const std::vector<char> bytes = attention.bytesOf(view, &status);
    std::ofstream file(folder.file(name), std::ios::binary);
    if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
      throw CannotRun(Outcome::failed, "cannot write " + folder.file(name));
  }
  if (!status.ok()) return run.message = status.message(), Outcome::failed;
  const PeerAnswer answer =
      peer.run({"--folder", folder.path(), "--sequence", std::to_string(shape.sequence), "--heads",
                std::to_string(shape.heads), "--kv-heads", std::to_string(shape.kvHeads), "--head-size",
                std::to_string(shape.headSize)},
               run.leftSeconds() - 5);
  if (answer.status != 0 || !answer.result.is_object())
    return run.message = "PyTorch: " + answer.message, Outcome::failed;
  run.result = answer.result;
  run.result["sequenceLengthTokens"] = shape.sequence;
  Outcome outcome = Outcome::passed;
  for (const auto& [name, ours] : answer.result.at("ours").items()) {
    // Twice the error of PyTorch's own attention in bfloat16, and one rounding.
    const double limit = 2 * answer.result.at("torch").at(name).get<double>() + 1. / 256;
    if (!(ours.is_number() && ours.get<double>() <= limit))
      outcome = Outcome::failed,
      run.message = name + ": error " + ours.dump() + " of at most " + Json(limit).dump();
  }
  return outcome;
}

}  // namespace internevo::check
