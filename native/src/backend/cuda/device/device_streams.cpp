#include "backend/cuda/device/device_streams.h"

#include <vector>

namespace internevo::cuda {

namespace {

int currentDevice() {
  int ordinal = 0;
  static_cast<void>(cudaGetDevice(&ordinal));
  return ordinal;
}

class DeviceStreams final : public Streams {
 public:
  DeviceStreams() : ordinal_(currentDevice()) {}
  ~DeviceStreams() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  Status createEvent(Event* made) override { return makeEvent(made, cudaEventDisableTiming); }
  Status createTimedEvent(Event* made) override { return makeEvent(made, cudaEventDefault); }
  Status elapsed(Event begin, Event end, double* seconds) override {
    float milliseconds = 0;
    INTERNEVO_RETURN_IF_ERROR(cudaStatus(
        cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)),
        "cudaEventElapsedTime"));
    *seconds = 1e-3 * static_cast<double>(milliseconds);
    return Status::success();
  }
  Status happened(Event event, bool* result) override {
    // A thread that comes for the first time would make a context on the first device.
    INTERNEVO_RETURN_IF_ERROR(cudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
    const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(event));
    *result = code == cudaSuccess;
    return code == cudaErrorNotReady ? Status::success() : cudaStatus(code, "cudaEventQuery");
  }
  Status record(Event event, const Queue& on) override {
    return cudaStatus(cudaEventRecord(static_cast<cudaEvent_t>(event), on.stream), "cudaEventRecord");
  }
  Status wait(const Queue& on, Event event) override {
    return cudaStatus(cudaStreamWaitEvent(on.stream, static_cast<cudaEvent_t>(event), 0),
                      "cudaStreamWaitEvent");
  }
  Status finished(const Queue& queue, bool* result) override {
    const cudaError_t code = cudaStreamQuery(queue.stream);
    *result = code == cudaSuccess;
    return code == cudaErrorNotReady ? Status::success() : cudaStatus(code, "cudaStreamQuery");
  }

 protected:
  Status make(Queue* made) override {
    int lowest = 0, highest = 0;
    INTERNEVO_RETURN_IF_ERROR(
        cudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange"));
    cudaStream_t stream = nullptr;
    INTERNEVO_RETURN_IF_ERROR(cudaStatus(
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, streams_.empty() ? lowest : highest),
        "cudaStreamCreateWithPriority"));
    streams_.push_back(stream);
    made->stream = stream;
    return Status::success();
  }
  Status block(const Queue& queue) override {
    return cudaStatus(cudaStreamSynchronize(queue.stream), "cudaStreamSynchronize");
  }

 private:
  Status makeEvent(Event* made, unsigned flags) {
    cudaEvent_t event = nullptr;
    INTERNEVO_RETURN_IF_ERROR(
        cudaStatus(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
    events_.push_back(event);
    *made = event;
    return Status::success();
  }

  const int ordinal_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

std::unique_ptr<Streams> createDeviceStreams() { return std::make_unique<DeviceStreams>(); }

}  // namespace internevo::cuda
