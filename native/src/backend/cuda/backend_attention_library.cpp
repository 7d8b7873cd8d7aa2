// Attention by a library: which passes of which shapes it computes.
#include "backend/cuda/backend_attention_library.h"

#include <cstdio>

#include "backend/cuda/attention_trial.h"

namespace internevo::cuda {

namespace {

constexpr std::size_t kForward = 0, kBackward = 1;

bool& of(AttentionServed& served, AttentionPass pass) {
  return pass == AttentionPass::forward ? served.forward : served.backward;
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9) + 1; }

Status askedInVain(const AttentionProblem& problem, const char* pass, const std::string& reason) {
  return {StatusCode::badConfig, "INTERNEVO_CUDA_ATTENTION is \"cudnn\", which cannot compute attention " +
                                     std::string(pass) + " of " + nameOf(problem) + ": " + reason +
                                     "; unset it, or set it to warp or warpgroup"};
}

std::string milliseconds(std::int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", 1e-6 * static_cast<double>(nanoseconds));
  return text;
}

}  // namespace

Status findAttentionLibrary(const OpenAttentionLibrary& open, Device* device) {
  INTERNEVO_RETURN_IF_ERROR(attentionAsked(&device->attentionChoice));
  const bool asked = device->attentionChoice == AttentionChoice::cudnn;
  if (!asked && device->attentionChoice != AttentionChoice::best) return Status::success();
  const Status opened = open(&device->attentionLibrary);
  if (opened.ok()) return Status::success();
  device->noAttentionLibrary = opened.message();
  if (!asked) return Status::success();
  return {StatusCode::badConfig, "INTERNEVO_CUDA_ATTENTION is \"cudnn\": " + opened.message() +
                                     ", or unset INTERNEVO_CUDA_ATTENTION for our kernels"};
}

Status CudaBackend::servedByLibrary(const AttentionProblem& problem, AttentionPass pass, Workspace workspace,
                                    bool* served) {
  *served = false;
  if (device_.attentionLibrary == nullptr) return Status::success();
  if (const auto agreed = served_.find(problem); agreed != served_.end()) {
    *served = of(agreed->second, pass);
    return Status::success();
  }
  if (device_.attentionChoice != AttentionChoice::cudnn) return Status::success();
  bool& ready = of(ready_[problem], pass);
  if (!ready) {
    const Status prepared = device_.attentionLibrary->prepare(problem, pass, workspace.bytes);
    if (!prepared.ok())
      return askedInVain(problem, pass == AttentionPass::forward ? "forward" : "backward",
                         prepared.message());
    ready = true;
  }
  *served = true;
  return Status::success();
}

Status CudaBackend::tryLibrary(const AttentionArguments& a, const LibraryAttention& x, AttentionTimes* times,
                               std::array<std::string, 2>* refusals) {
  const bool asked = device_.attentionChoice == AttentionChoice::cudnn;
  if (device_.attentionLibrary == nullptr || (device_.attentionChoice != AttentionChoice::best && !asked))
    return Status::success();
  const AttentionProblem problem = problemOf(a, device_.deterministic);
  AttentionLibrary& library = *device_.attentionLibrary;
  const auto tensor = [&](const char* name, View view, std::int64_t heads, std::int64_t stride) {
    return TrialTensor{name, view, a.batch * a.sequence, heads * a.headSize, stride};
  };
  const auto writable = [](ConstView view) { return View{const_cast<void*>(view.data), view.type}; };
  const std::unique_ptr<Stopwatch> stopwatch = createStopwatch();
  INTERNEVO_RETURN_IF_ERROR(fillForTrial(memory(), tensor("q", writable(x.q), a.heads, a.queryStride), 1));
  INTERNEVO_RETURN_IF_ERROR(fillForTrial(memory(), tensor("k", writable(x.k), a.kvHeads, a.keyStride), 2));
  INTERNEVO_RETURN_IF_ERROR(fillForTrial(memory(), tensor("v", writable(x.v), a.kvHeads, a.valueStride), 3));

  const auto attempt = [&](AttentionPass which, const TrialPass& pass, const char* name,
                           AttentionTimes::Word own, AttentionTimes::Word byLibrary,
                           std::string* refusal) -> Status {
    TrialResult result;
    const Status prepared = library.prepare(problem, which, x.scratch.bytes);
    if (!prepared.ok()) {
      result.refusal = prepared.message();
      INTERNEVO_RETURN_IF_ERROR(pass.own());
    } else {
      INTERNEVO_RETURN_IF_ERROR(runTrial(memory(), *stopwatch, pass, &result));
    }
    *refusal = result.refusal;
    if (!result.refusal.empty())
      return asked ? askedInVain(problem, name, result.refusal) : Status::success();
    times->words[own] = asked ? AttentionTimes::kNever : nanoseconds(result.ownSeconds);
    times->words[byLibrary] = nanoseconds(result.librarySeconds);
    return Status::success();
  };
  const TrialPass forward{[&] { return ownForward(a, x); },
                          [&] { return library.compute(queue(), problem, AttentionPass::forward, x); },
                          {tensor("o", x.o, a.heads, a.outputStride),
                           {"logSumExp", x.logSumExp, a.batch * a.heads, a.sequence, a.sequence}},
                          true};
  INTERNEVO_RETURN_IF_ERROR(attempt(AttentionPass::forward, forward, "forward", AttentionTimes::ownForward,
                                    AttentionTimes::libraryForward, &(*refusals)[kForward]));
  if (x.gO.empty()) return Status::success();
  INTERNEVO_RETURN_IF_ERROR(fillForTrial(memory(), tensor("gO", writable(x.gO), a.heads, a.outputStride), 4));
  const TrialPass backward{
      [&] { return ownBackward(a, x); },
      [&] { return library.compute(queue(), problem, AttentionPass::backward, x); },
      {tensor("gQ", x.gQ, a.heads, a.queryStride), tensor("gK", x.gK, a.kvHeads, a.keyStride),
       tensor("gV", x.gV, a.kvHeads, a.valueStride)},
      device_.deterministic};
  return attempt(AttentionPass::backward, backward, "backward", AttentionTimes::ownBackward,
                 AttentionTimes::libraryBackward, &(*refusals)[kBackward]);
}

void CudaBackend::tellAttention(const AttentionProblem& problem, const AttentionTimes& slowest,
                                const std::array<std::string, 2>& refusals) const {
  const bool ours = device_.attentionChoice == AttentionChoice::warp ||
                    device_.attentionChoice == AttentionChoice::warpgroup;
  if (communication_.rank() != 0 || ours ||
      (device_.attentionLibrary == nullptr && device_.noAttentionLibrary.empty()))
    return;
  std::string text = "attention of " + nameOf(problem) + ": ";
  if (device_.attentionLibrary == nullptr) {
    text += "ours; " + device_.noAttentionLibrary;
  } else {
    const AttentionServed served = chosenBy(slowest);
    const std::string name = device_.attentionLibrary->name();
    const auto tell = [&](const char* pass, bool byLibrary, AttentionTimes::Word own,
                          AttentionTimes::Word other, const std::string& refusal) {
      const std::int64_t o = slowest.words[own], l = slowest.words[other];
      text += std::string(pass) + (byLibrary ? name : "ours");
      if (!refusal.empty()) return static_cast<void>(text += " (" + name + ": " + refusal + ")");
      if (l == AttentionTimes::kNever && o == 0) return static_cast<void>(text += " (not tried)");
      if (l == AttentionTimes::kNever)
        return static_cast<void>(text += " (" + name + " cannot be had on every rank)");
      text += " (" + name + " " + milliseconds(l) +
              (o == AttentionTimes::kNever ? ", asked for" : ", ours " + milliseconds(o)) + ")";
    };
    tell("forward ", served.forward, AttentionTimes::ownForward, AttentionTimes::libraryForward,
         refusals[kForward]);
    tell(", backward ", served.backward, AttentionTimes::ownBackward, AttentionTimes::libraryBackward,
         refusals[kBackward]);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace internevo::cuda
