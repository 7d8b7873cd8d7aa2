#include "probe/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>

#include "comm/host_use_json.h"
#include "internevo/device_library.h"
#include "probe/device.h"

namespace internevo::probe {

namespace {

/// State of one run.
struct Run {
  const Config& config;
  const MpiSession& session;
  const Emit& emit;
  std::unique_ptr<Backend> backend;
  Communicator world;
  std::unique_ptr<Timer> timer;
  Groups groups;
  std::unique_ptr<Lane> lane;
  std::int64_t budgetBytes = 0;

  void send(const Json& event) const {
    if (session.rank() == 0) emit(event);
  }
};

Json withSpread(Json event, const Samples& samples) {
  event["medianSeconds"] = samples.medianSeconds;
  event["p10Seconds"] = samples.p10Seconds;
  event["p90Seconds"] = samples.p90Seconds;
  event["samples"] = samples.count;
  return event;
}

Status measureCollective(Run& run, const CollectivePoint& point) {
  Memory memory(run.budgetBytes, run.backend->memory());
  const Communicator* group = nullptr;
  Work work;
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.groups.get(point, run.session.rank(), false, &group)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(prepareCollective(point, group, memory, &work)));
  Samples samples;
  INTERNEVO_RETURN_IF_ERROR(run.timer->measure(work.run, &samples));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.backend->settle()));
  run.send(withSpread({{"event", "collective"},
                       {"op", point.opName},
                       {"bytes", point.bytes},
                       {"groupSize", point.groups.front().size()},
                       {"placement", point.placement}},
                      samples));
  return Status::success();
}

Status measureModule(Run& run, const ModulePoint& point) {
  Memory memory(run.budgetBytes, run.backend->memory());
  Work work;
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(prepareModule(point, *run.backend, memory, &work)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->choose(work));
  Samples samples;
  INTERNEVO_RETURN_IF_ERROR(run.timer->measure(work.run, &samples));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.backend->settle()));
  run.send(withSpread({{"event", "module"}, {"shape", point.shape}, {"flops", work.flops}}, samples));
  return Status::success();
}

constexpr double kMostRepetitions = 64;

/// `call` so many times in a row.
std::function<Status()> repeated(const std::function<Status()>& call, int times) {
  return [&call, times] {
    for (int i = 0; i < times; ++i) INTERNEVO_RETURN_IF_ERROR(call());
    return Status::success();
  };
}

/// Modules on the computing thread (a device: its stream) while the lane runs collectives, as the trainer overlaps them: with a lane's
/// way of waiting, and each as often as makes both equally long. Of a short collective beside a long module one would
/// see the slow-down of neither.
Status measureOverlap(Run& run, const OverlapPoint& point) {
  Memory memory(run.budgetBytes, run.backend->memory());
  const Communicator *group = nullptr, *polite = nullptr;
  Work compute, communicate, beside;
  const int rank = run.session.rank();
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.groups.get(point.collective, rank, false, &group)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.groups.get(point.collective, rank, true, &polite)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(prepareModule(point.module, *run.backend, memory, &compute)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->choose(compute));
  INTERNEVO_RETURN_IF_ERROR(
      run.timer->agree(prepareCollective(point.collective, group, memory, &communicate)));
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(prepareCollective(point.collective, polite, memory, &beside)));
  Samples computeAlone, communicationAlone, both;
  INTERNEVO_RETURN_IF_ERROR(run.timer->measure(compute.run, &computeAlone));
  INTERNEVO_RETURN_IF_ERROR(run.timer->measure(communicate.run, &communicationAlone));
  double modules =
      std::clamp(communicationAlone.medianSeconds / computeAlone.medianSeconds, 1.0, kMostRepetitions);
  double collectives =
      std::clamp(computeAlone.medianSeconds / communicationAlone.medianSeconds, 1.0, kMostRepetitions);
  INTERNEVO_RETURN_IF_ERROR(run.timer->largest(&modules));
  INTERNEVO_RETURN_IF_ERROR(run.timer->largest(&collectives));
  const int moduleCount = static_cast<int>(modules + 0.5),
            collectiveCount = static_cast<int>(collectives + 0.5);
  const auto computing = repeated(compute.run, moduleCount),
             communicating = repeated(beside.run, collectiveCount);
  const auto together = [&] {
    const Lane::Ticket ticket = run.lane->submit(communicating);
    const Status computed = computing();
    const Status communicated = run.lane->wait(ticket);
    return computed.ok() ? communicated : computed;
  };
  // What the modules lose to the room that is left for collectives is part of the slow-down.
  run.backend->shareWithCommunication(true);
  INTERNEVO_RETURN_IF_ERROR(run.timer->choose(compute));
  const Status measured = run.timer->measure(together, &both);
  run.backend->shareWithCommunication(false);
  INTERNEVO_RETURN_IF_ERROR(measured);
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(run.backend->settle()));
  const double computeSeconds = moduleCount * computeAlone.medianSeconds;
  const double communicationSeconds = collectiveCount * communicationAlone.medianSeconds;
  run.send({{"event", "overlap"},
            {"shape", point.module.shape},
            {"op", point.collective.opName},
            {"bytes", point.collective.bytes},
            {"groupSize", point.collective.groups.front().size()},
            {"aloneComputeSeconds", computeSeconds},
            {"aloneCommunicationSeconds", communicationSeconds},
            {"togetherSeconds", both.medianSeconds},
            {"slowdown", both.medianSeconds / std::max(computeSeconds, communicationSeconds)}});
  return Status::success();
}

Status openBackend(const Config& config, std::unique_ptr<Backend>* result) {
  if (config.deviceKind == DeviceKind::cuda) return openCudaBackend({localRank(), true}, result);
  return openCpuBackend(config.threadsPerRank, result);
}

/// As the trainer does it: MPI carries the name of the run.
Status startDeviceGroups(Run& run) {
  DeviceGroups* const device = run.backend->groups();
  run.groups.use(device);
  if (device == nullptr || run.world.size() == 1) return Status::success();
  std::array<std::byte, DeviceGroups::kIdBytes> id{};
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(device->createId(run.world.index() == 0 ? id.data() : nullptr)));
  INTERNEVO_RETURN_IF_ERROR(run.world.broadcast({id.data(), DataType::byte}, DeviceGroups::kIdBytes, 0));
  return device->start(id.data(), run.world.index(), run.world.size());
}

Status measureAll(Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  const Config& config = run.config;
  const MpiSession& session = run.session;
  std::vector<int> ranks(static_cast<std::size_t>(session.worldSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  INTERNEVO_RETURN_IF_ERROR(Communicator::create(ranks, 1, &run.world));
  run.timer = std::make_unique<Timer>(config, run.world);
  INTERNEVO_RETURN_IF_ERROR(run.timer->agree(openBackend(config, &run.backend)));
  run.timer->use(*run.backend);
  run.lane = run.backend->createLane();
  INTERNEVO_RETURN_IF_ERROR(startDeviceGroups(run));
  const int hosts = std::max(1, static_cast<int>(session.hosts().size()));
  run.budgetBytes = memoryBudgetBytes(run.backend->memory(), (session.worldSize() + hosts - 1) / hosts);
  const auto taken = static_cast<double>(runtimeBytes(run.backend->memory()));

  if (config.device) {
    Json event;
    INTERNEVO_RETURN_IF_ERROR(
        describeDevice(session, *run.backend, *run.timer, run.budgetBytes, taken, &event));
    run.send(event);
  }
  const HostUseMeter meter;
  for (const CollectivePoint& point : config.collectives)
    INTERNEVO_RETURN_IF_ERROR(measureCollective(run, point));
  for (const ModulePoint& point : config.modules) INTERNEVO_RETURN_IF_ERROR(measureModule(run, point));
  for (const OverlapPoint& point : config.overlaps) INTERNEVO_RETURN_IF_ERROR(measureOverlap(run, point));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::vector<HostUse> use = meter.end();
  run.send({{"event", "hosts"}, {"hosts", hostUseJson<Json>(use)}});
  run.send({{"event", "done"}, {"seconds", seconds}});
  return Status::success();
}

}  // namespace

Outcome runProbe(const Config& config, const MpiSession& session, const Emit& emit) {
  Run run{config, session, emit, nullptr, {}, nullptr, {}, nullptr, 0};
  Status status = measureAll(run);
  const bool agreed = run.timer != nullptr && run.timer->agreed();
  return {std::move(status), agreed};
}

}  // namespace internevo::probe
