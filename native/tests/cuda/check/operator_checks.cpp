// Operators against the CPU backend, and what products and streams reach.
#include <thread>

#include "cuda/check/case.h"
#include "cuda/check/harness.h"
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

Outcome timeProducts(CaseRun& run) { return noteTimes(run, productBenchmarks(run.device(), run.small())); }
Outcome timeStreams(CaseRun& run) { return noteTimes(run, streamBenchmarks(run.device(), run.small())); }

}  // namespace internevo::check
