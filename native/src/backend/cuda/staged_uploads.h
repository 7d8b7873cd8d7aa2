// What the program gives to a device piece by piece, a micro-batch's tokens above all, by way of pinned memory.
#pragma once

#include <array>
#include <cstring>

#include "backend/cuda/pinned_memory.h"
#include "backend/cuda/streams.h"

namespace internevo::cuda {

/// The caller's memory is its own again on return, and the caller has waited for nothing that the device computes: it waits only where
/// it is kPlaces uploads ahead of the device. Everything given outlives it.
class StagedUploads {
 public:
  static constexpr int kPlaces = 8;  ///< two micro-batches of at most four arrays
  static constexpr std::int64_t kLargestBytes = std::int64_t{16} << 20;

  StagedUploads(Streams& streams, PinnedMemory& memory) : streams_(streams), memory_(memory) {}
  /// The device must be done with memory that goes; where it never will be, the run was abandoned and the process ends.
  ~StagedUploads() {
    for (const Place& place : places_) {
      if (place.recorded) static_cast<void>(streams_.synchronize(place.copied));
      if (place.data != nullptr) memory_.release(place.data, place.bytes);
    }
  }
  StagedUploads(const StagedUploads&) = delete;
  StagedUploads& operator=(const StagedUploads&) = delete;

  /// @param bytes at most kLargestBytes
  Status upload(void* target, const void* host, std::int64_t bytes, const Queue& on) {
    if (bytes == 0) return Status::success();
    Place& place = places_[static_cast<std::size_t>(next_++ % kPlaces)];
    if (place.copied == nullptr) INTERNEVO_RETURN_IF_ERROR(streams_.createEvent(&place.copied));
    if (place.recorded) INTERNEVO_RETURN_IF_ERROR(streams_.synchronize(place.copied));
    if (place.bytes < bytes) {
      if (place.data != nullptr) memory_.release(place.data, place.bytes);
      place.data = nullptr, place.bytes = 0;
      INTERNEVO_RETURN_IF_ERROR(memory_.allocate(bytes, &place.data));
      place.bytes = bytes;
    }
    std::memcpy(place.data, host, static_cast<std::size_t>(bytes));
    INTERNEVO_RETURN_IF_ERROR(memory_.upload(target, place.data, bytes, on));
    place.recorded = true;
    return streams_.record(place.copied, on);
  }

 private:
  struct Place {
    void* data = nullptr;
    std::int64_t bytes = 0;
    Streams::Event copied = nullptr;
    bool recorded = false;
  };

  Streams& streams_;
  PinnedMemory& memory_;
  std::array<Place, kPlaces> places_{};
  int next_ = 0;
};

}  // namespace internevo::cuda
