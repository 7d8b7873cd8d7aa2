#include "internevo/arena.h"

#include <algorithm>
#include <string>

namespace internevo {

Arena::~Arena() {
  if (base_ != nullptr) memory_->release(base_, capacityBytes_);
}

Status Arena::create(std::int64_t bytes, MemorySpace& memory) {
  if (base_ != nullptr) return {StatusCode::internal, "the arena exists already"};
  if (bytes <= 0) {
    return {StatusCode::badConfig, "arena size " + std::to_string(bytes) + " must be positive"};
  }
  INTERNEVO_RETURN_IF_ERROR(memory.allocate(bytes, &base_));
  memory_ = &memory;
  capacityBytes_ = bytes;
  return Status::success();
}

Status Arena::at(std::int64_t offsetBytes, std::int64_t bytes, void** result) {
  const bool inside = offsetBytes >= 0 && bytes >= 0 && offsetBytes <= capacityBytes_ &&
                      bytes <= capacityBytes_ - offsetBytes;
  if (base_ == nullptr || !inside || offsetBytes % kAlignmentBytes != 0) {
    return {StatusCode::outOfMemory,
            "range of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offsetBytes) +
                " is not an aligned part of the arena of " + std::to_string(capacityBytes_) + " bytes"};
  }
  *result = static_cast<std::byte*>(base_) + offsetBytes;
  highWaterBytes_ = std::max(highWaterBytes_, offsetBytes + bytes);
  return Status::success();
}

}  // namespace internevo
