// Operators against the CPU backend, and what products and streams reach.
#include <thread>

#include "cuda/check/case.h"
#include "cuda/check/harness.h"
#include "cuda/check/timing.h"
#include "cuda/check/verdicts.h"

namespace internevo::check {

std::unique_ptr<Backend> cpuReference() {
  return createCpuBackend(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

Json jsonOf(const Verdict& v) {
  return {{"name", v.name},           {"precision", v.precision}, {"passed", v.passed},
          {"error", number(v.error)}, {"limit", number(v.limit)}, {"message", v.message}};
}

Json jsonOf(const Measured& m) {
  Json row{{"name", m.name},
           {"seconds", number(m.seconds)},
           {"figure", number(m.figure)},
           {"unit", m.unit + "/s"}};
  if (m.share > 0) row["share"] = number(m.share);
  if (!m.message.empty()) row["message"] = m.message;
  return row;
}

Outcome noteVerdict(CaseRun& run, const Verdict& v, const std::string& against) {
  Json row = jsonOf(v);
  row["against"] = against;
  run.result["comparisons"].push_back(row);
  if (v.passed) return Outcome::passed;
  run.message = v.precision + " against " + against + ": error " + number(v.error).dump() + " of at most " +
                number(v.limit).dump() + ", " + v.message;
  return Outcome::failed;
}

Outcome noteTimes(CaseRun& run, const std::vector<Measured>& all) {
  Outcome outcome = Outcome::passed;
  for (const Measured& each : all) {
    run.result["times"].push_back(jsonOf(each));
    if (!each.message.empty()) outcome = Outcome::failed, run.message = each.name + ": " + each.message;
  }
  return outcome;
}

Outcome checkOperator(CaseRun& run, std::size_t index) {
  const auto cpu = cpuReference();
  const Case each = made(operatorCases(run.small()).at(index));
  Outcome outcome = Outcome::passed;
  for (const DataType precision : {DataType::float32, DataType::bfloat16}) {
    if (noteVerdict(run, compare(each, precision, *cpu, run.device()), "the CPU") != Outcome::passed)
      outcome = Outcome::failed;
    run.noteNow();
  }
  return outcome;
}

/// As a run of a 7B at 8192 tokens chooses; the choices are then taken again as a run that goes on takes them.
Outcome checkProductChoice(CaseRun& run) {
  Backend& device = run.device();
  const std::int64_t rows = run.small() ? 32 : 8192, hidden = run.small() ? 64 : 4096,
                     ffn = run.small() ? 96 : 11008;
  constexpr DataType kType = DataType::bfloat16;
  ProductRequest request;
  request.uses.linear = {{rows, hidden, 3 * hidden, kType},
                         {rows, hidden, hidden, kType},
                         {rows, hidden, 2 * ffn, kType},
                         {rows, ffn, hidden, kType}};
  request.uses.heads = {{rows, hidden, run.small() ? 97 : 32000, device.lossChunkRows(), kType}};
  Operands o(device.memory());
  request.memory = o.scratch(device.linearWorkspaceBytes() + (run.small() ? 1 << 20 : std::int64_t{2} << 30));
  const LargestOfRanks alone = [](std::int64_t*, int) { return Status::success(); };
  ProductChoices again;
  Status status = o.status;
  if (status.ok()) status = device.chooseProducts(request, alone, &request.recorded);
  for (const ProductChoice& each : request.recorded.products) {
    run.result["products"].push_back({{"product", each.product},
                                      {"answer", each.answer},
                                      {"answers", each.answers},
                                      {"seconds", each.seconds},
                                      {"firstSeconds", each.firstSeconds}});
  }
  run.noteNow();
  request.search = ProductSearch::fixed;
  if (status.ok()) status = device.chooseProducts(request, alone, &again);
  if (status.ok()) status = device.settle();
  run.message = status.message();
  if (!status.ok()) return Outcome::failed;
  bool same = again.products.size() == request.recorded.products.size();
  for (std::size_t i = 0; same && i < again.products.size(); ++i)
    same = again.products[i].algorithm == request.recorded.products[i].algorithm;
  if (!same) run.message = "recorded choices are not taken again";
  return same ? Outcome::passed : Outcome::failed;
}

Outcome timeProducts(CaseRun& run) { return noteTimes(run, productBenchmarks(run.device(), run.small())); }
Outcome timeStreams(CaseRun& run) { return noteTimes(run, streamBenchmarks(run.device(), run.small())); }

}  // namespace internevo::check
