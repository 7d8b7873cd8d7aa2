#include "probe/points.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <tuple>

namespace internevo::probe {

namespace {

constexpr double kShortestSampleSeconds = 200e-6;  // shorter calls are repeated within a sample
constexpr int kMostRepetitions = 1000;
constexpr std::size_t kMostSamples = 100000;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Samples summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {quantile(seconds, 0.5), quantile(seconds, 0.1), quantile(seconds, 0.9),
          static_cast<int>(seconds.size())};
}

}  // namespace

Status Timer::largest(double* value) {
  return world_.allReduce({value, DataType::float64}, 1, ReduceOperation::maximum,
                          {scratch_.data(), static_cast<std::int64_t>(scratch_.size())});
}

Status Timer::largest(std::int64_t* words, int count) {
  return world_.allReduce({words, DataType::int64}, count, ReduceOperation::maximum,
                          {scratch_.data(), static_cast<std::int64_t>(scratch_.size())});
}

Status Timer::choose(const Work& work) {
  if (!work.choose) return Status::success();
  return agree(work.choose([this](std::int64_t* words, int count) { return largest(words, count); }));
}

Status Timer::agree(const Status& own) {
  const double place = static_cast<double>(world_.size() - world_.index());  // largest on the lowest rank
  double code = static_cast<double>(own.code()), reporter = own.ok() ? 0.0 : place;
  INTERNEVO_RETURN_IF_ERROR(largest(&code));
  INTERNEVO_RETURN_IF_ERROR(largest(&reporter));
  if (reporter == 0.0) return Status::success();
  agreed_ = true;
  if (reporter == place) return own;
  return {static_cast<StatusCode>(static_cast<int>(code)), ""};
}

Status Timer::sample(const std::function<Status()>& call, int repetitions, double* seconds) {
  INTERNEVO_RETURN_IF_ERROR(world_.barrier());
  INTERNEVO_RETURN_IF_ERROR(stopwatch_->start());
  for (int i = 0; i < repetitions; ++i) INTERNEVO_RETURN_IF_ERROR(call());
  INTERNEVO_RETURN_IF_ERROR(stopwatch_->stop(seconds));
  *seconds /= repetitions;
  return largest(seconds);
}

Status Timer::measure(const std::function<Status()>& call, Samples* result) {
  const double begin = now();
  double first = 0;
  INTERNEVO_RETURN_IF_ERROR(sample(call, 1, &first));  // fills caches and opens connections; not counted
  INTERNEVO_RETURN_IF_ERROR(sample(call, 1, &first));
  const int repetitions =
      std::clamp(static_cast<int>(kShortestSampleSeconds / std::max(first, 1e-9)), 1, kMostRepetitions);
  std::vector<double> seconds;
  while (true) {
    double one = 0;
    INTERNEVO_RETURN_IF_ERROR(sample(call, repetitions, &one));
    seconds.push_back(one);
    if (static_cast<int>(seconds.size()) < config_.minimumSamples) continue;
    // Waiting for each other counts: on a busy machine it takes longer than the call. Every rank sees the same numbers,
    // so all stop after the same sample.
    double spent = now() - begin;
    INTERNEVO_RETURN_IF_ERROR(largest(&spent));
    *result = summarise(seconds);
    const double spread = (result->p90Seconds - result->p10Seconds) / result->medianSeconds;
    if (spread <= config_.targetRelativeSpread || spent >= config_.maximumSeconds ||
        seconds.size() >= kMostSamples) {
      return Status::success();
    }
  }
}

Status Groups::get(const CollectivePoint& point, int rank, bool polite, const Communicator** result) {
  const std::vector<std::vector<int>>& groups = point.groups;
  const bool messages = point.op == Collective::pointToPoint;
  auto found = made_.find({groups, polite, messages});
  if (found == made_.end()) {
    auto communicator = std::make_unique<Communicator>();
    const auto own = std::find_if(groups.begin(), groups.end(), [rank](const std::vector<int>& group) {
      return std::find(group.begin(), group.end(), rank) != group.end();
    });
    if (own != groups.end()) {
      const int tag = 100 + static_cast<int>(made_.size());
      INTERNEVO_RETURN_IF_ERROR(Communicator::create(*own, tag, communicator.get()));
      communicator->setPolite(polite);
    } else {
      communicator.reset();
    }
    if (device_ != nullptr) {  // all ranks take part
      std::unique_ptr<DeviceGroup> made;
      const int color = communicator == nullptr ? -1 : *std::min_element(own->begin(), own->end());
      const int index = communicator == nullptr ? 0 : communicator->index();
      INTERNEVO_RETURN_IF_ERROR(
          device_->makeGroup(color, index, static_cast<int>(groups.front().size()), messages, &made));
      if (communicator != nullptr) communicator->moveToDevice(std::move(made));
    }
    found = made_.emplace(std::tuple(groups, polite, messages), std::move(communicator)).first;
  }
  *result = found->second.get();
  return Status::success();
}

Status prepareCollective(const CollectivePoint& point, const Communicator* group, Memory& memory,
                         Work* work) {
  if (group == nullptr) {
    work->run = [] { return Status::success(); };
    return Status::success();
  }
  const std::int64_t size = group->size();
  // Rounded up to whole elements for every rank.
  const std::int64_t floats = alignUp((point.bytes + 3) / 4, size), bytes = alignUp(point.bytes, size);
  const Workspace scratch = memory.workspace(group->reduceWorkspaceBytes());
  switch (point.op) {
    case Collective::allReduce: {
      const View data = memory.take(floats, DataType::float32);
      memory.zero(data, floats);  // sums of repeated calls must stay finite
      work->run = [=] { return group->allReduce(data, floats, ReduceOperation::sum, scratch); };
      break;
    }
    case Collective::reduceScatter: {
      const View input = memory.take(floats, DataType::float32),
                 output = memory.take(floats / size, DataType::float32);
      work->run = [=] { return group->reduceScatter(input, output, floats / size, scratch); };
      break;
    }
    case Collective::allGather: {
      const View input = memory.take(bytes / size, DataType::byte),
                 output = memory.take(bytes, DataType::byte);
      work->run = [=] { return group->allGather(input, output, bytes / size); };
      break;
    }
    case Collective::allToAll: {
      const View input = memory.take(bytes, DataType::byte), output = memory.take(bytes, DataType::byte);
      work->run = [=] { return group->allToAll(input, output, bytes / size); };
      break;
    }
    case Collective::broadcast: {
      const View data = memory.take(bytes, DataType::byte);
      work->run = [=] { return group->broadcast(data, bytes, 0); };
      break;
    }
    case Collective::pointToPoint: {
      // Both ways at once, as the stages of a pipeline exchange activations and gradients.
      const View outgoing = memory.take(point.bytes, DataType::byte),
                 incoming = memory.take(point.bytes, DataType::byte);
      const auto sending = std::make_shared<Transfer>(), receiving = std::make_shared<Transfer>();
      const int peer = 1 - group->index();
      work->run = [=, bytes = point.bytes] {
        INTERNEVO_RETURN_IF_ERROR(group->startReceive(incoming, bytes, peer, 0, receiving.get()));
        INTERNEVO_RETURN_IF_ERROR(group->startSend(outgoing, bytes, peer, 0, sending.get()));
        INTERNEVO_RETURN_IF_ERROR(Communicator::finish(receiving.get()));
        return Communicator::finish(sending.get());
      };
      break;
    }
  }
  return memory.status();
}

}  // namespace internevo::probe
