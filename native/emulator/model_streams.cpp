#include "emulator/model_streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "emulator/model_memory.h"

namespace internevo::cuda::model {

namespace {

struct ModelEvent {
  std::atomic<std::int64_t> recorded{0};  ///< given to a stream so far
  std::int64_t step = -1;                 ///< of the trace, that recorded it last
  std::atomic<std::int64_t> happened{0};
  std::atomic<std::int64_t> atNanoseconds{-1};  ///< of the device's clock
};

std::atomic<std::int64_t> addedNanoseconds{0};

class Work final : public Operation {
 public:
  Work(const char* name, std::function<Status()> body) : name_(name), body_(std::move(body)) {}
  const char* name() const override { return name_; }
  bool advance(Status* problem) override {
    *problem = body_();
    return true;
  }

 private:
  const char* const name_;
  std::function<Status()> body_;
};

class EventRecord final : public Operation {
 public:
  explicit EventRecord(ModelEvent& event) : event_(event), number_(++event.recorded) {}
  const char* name() const override { return "record"; }
  bool advance(Status*) override {
    event_.atNanoseconds.store(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count() +
        addedNanoseconds.load());
    return event_.happened.store(number_), true;
  }

 private:
  ModelEvent& event_;
  const std::int64_t number_;
};

class EventWait final : public Operation {
 public:
  explicit EventWait(const ModelEvent& event) : event_(event), number_(event.recorded) {}
  const char* name() const override { return "wait"; }
  bool advance(Status*) override { return event_.happened.load() >= number_; }

 private:
  const ModelEvent& event_;
  const std::int64_t number_;
};

class ModelStreams;

struct Given {
  std::unique_ptr<Operation> operation;
  std::int64_t step = -1;  ///< of the trace, where there is one
};

class ModelStream final : public Stream {
 public:
  ModelStream(ModelStreams& device, int number) : number(number), device_(device) {}
  void enqueue(std::unique_ptr<Operation> operation) override;
  Status run(const char* name, std::function<Status()> body) override;
  void touch(const std::function<void()>& body) override {
    const OpenMemory open;
    body();
  }
  void note(const void* data, std::int64_t bytes, bool writes) override { noteAccess(data, bytes, writes); }

  const int number;  ///< in the order in which streams were made
  std::deque<Given> work;

 private:
  ModelStreams& device_;
};

class ModelStreams final : public Streams {
 public:
  ModelStreams(bool threaded, StreamOrder order, LaunchTrace* trace) : order_(order), trace_(trace) {
    if (threaded) thread_ = std::thread([this] { serve(); });
  }
  ~ModelStreams() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Status createEvent(Event* made) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::make_unique<ModelEvent>());
    *made = events_.back().get();
    return Status::success();
  }
  Status createTimedEvent(Event* made) override { return createEvent(made); }
  Status elapsed(Event begin, Event end, double* seconds) override {
    const std::int64_t from = static_cast<ModelEvent*>(begin)->atNanoseconds,
                       to = static_cast<ModelEvent*>(end)->atNanoseconds;
    if (from < 0 || to < 0) return {StatusCode::internal, "an event has not happened"};
    *seconds = 1e-9 * static_cast<double>(to - from);
    return Status::success();
  }
  Status happened(Event event, bool* result) override {
    const std::lock_guard lock(mutex_);
    const auto& own = *static_cast<ModelEvent*>(event);
    *result = !problem_.ok() || own.happened.load() >= own.recorded.load();
    return problem_;
  }
  Status record(Event event, const Queue& on) override {
    auto& own = *static_cast<ModelEvent*>(event);
    own.step = tell({LaunchStep::Kind::record, streamOf(on).number, -1, {}, {}, {}});
    give(streamOf(on), {std::make_unique<EventRecord>(own)});
    return Status::success();
  }
  Status wait(const Queue& on, Event event) override {
    const auto& own = *static_cast<ModelEvent*>(event);
    tell({LaunchStep::Kind::wait, streamOf(on).number, own.step, {}, {}, {}});
    give(streamOf(on), {std::make_unique<EventWait>(own)});
    return Status::success();
  }
  Status finished(const Queue& queue, bool* result) override {
    const std::lock_guard lock(mutex_);
    *result = !problem_.ok() || streamOf(queue).work.empty();
    if (*result) tell({LaunchStep::Kind::hostWait, streamOf(queue).number, -1, {}, {}, {}});
    return problem_;
  }

  bool threaded() const { return thread_.joinable(); }
  std::int64_t tell(LaunchStep step) { return trace_ == nullptr ? -1 : trace_->add(std::move(step)); }
  void work(ModelStream& stream, std::unique_ptr<Operation> operation) {
    const std::int64_t step = tell({LaunchStep::Kind::work, stream.number, -1, operation->name(), {}, {}});
    give(stream, {std::move(operation), step});
  }
  void finishAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !anyWork() || !problem_.ok(); });
  }

 protected:
  Status make(Queue* made) override {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<ModelStream>(*this, static_cast<int>(streams_.size())));
    made->stream = streams_.back().get();
    return Status::success();
  }
  Status block(const Queue& queue) override {
    std::unique_lock lock(mutex_);
    const auto& work = streamOf(queue).work;
    changed_.wait(lock, [&] { return work.empty() || !problem_.ok(); });
    tell({LaunchStep::Kind::hostWait, streamOf(queue).number, -1, {}, {}, {}});
    return problem_;
  }

 private:
  static ModelStream& streamOf(const Queue& queue) { return *static_cast<ModelStream*>(queue.stream); }

  bool advance(const Given& given, Status* problem) {
    const LaunchTrace::Doing doing(given.step < 0 ? nullptr : trace_, given.step);
    return given.operation->advance(problem);
  }

  void give(ModelStream& stream, Given given) {
    if (!threaded()) {
      while (problem_.ok() && !advance(given, &problem_)) std::this_thread::yield();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      stream.work.push_back(std::move(given));
    }
    changed_.notify_all();
  }

  std::vector<ModelStream*> turn() {
    std::vector<ModelStream*> result;
    for (const auto& stream : streams_) result.push_back(stream.get());
    if (order_ == StreamOrder::last) std::reverse(result.begin(), result.end());
    if (order_ == StreamOrder::mixed) std::shuffle(result.begin(), result.end(), random_);
    return result;
  }

  bool anyWork() const {
    for (const auto& stream : streams_) {
      if (!stream->work.empty()) return true;
    }
    return false;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || (problem_.ok() && anyWork()); });
      if (closing_) return;  // whoever wanted the rest would have waited for it
      bool progressed = false;
      for (ModelStream* stream : turn()) {
        if (stream->work.empty()) continue;
        const Given& given = stream->work.front();
        Status problem;
        lock.unlock();
        progressed = advance(given, &problem);
        lock.lock();
        if (!problem.ok()) problem_ = problem;
        if (!progressed) continue;
        stream->work.pop_front();
        break;
      }
      if (progressed || !problem_.ok()) {
        changed_.notify_all();
        continue;
      }
      lock.unlock();
      std::this_thread::sleep_for(
          std::chrono::microseconds(20));  // messages of other ranks are looked for again
      lock.lock();
    }
  }

  const StreamOrder order_;
  LaunchTrace* const trace_;
  std::minstd_rand random_{7};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ModelStream>> streams_;
  std::vector<std::unique_ptr<ModelEvent>> events_;
  bool closing_ = false;
  Status problem_;
  std::thread thread_;
};

void ModelStream::enqueue(std::unique_ptr<Operation> operation) { device_.work(*this, std::move(operation)); }

Status ModelStream::run(const char* name, std::function<Status()> body) {
  if (device_.threaded()) return enqueue(std::make_unique<Work>(name, std::move(body))), Status::success();
  Status result;
  enqueue(std::make_unique<Work>(name, [&] { return result = body(), Status::success(); }));
  return result;
}

}  // namespace

std::unique_ptr<Streams> createModelStreams(bool thread, StreamOrder order, LaunchTrace* trace) {
  return std::make_unique<ModelStreams>(thread, order, trace);
}

void addDeviceTime(std::int64_t nanoseconds) noexcept { addedNanoseconds += nanoseconds; }

void finishAll(Streams& streams) noexcept { static_cast<ModelStreams&>(streams).finishAll(); }

StreamOrder streamOrderAsked() {
  const char* const asked = std::getenv("INTERNEVO_MODEL_STREAMS");
  if (asked != nullptr && std::strcmp(asked, "last") == 0) return StreamOrder::last;
  if (asked != nullptr && std::strcmp(asked, "mixed") == 0) return StreamOrder::mixed;
  return StreamOrder::first;
}

}  // namespace internevo::cuda::model
