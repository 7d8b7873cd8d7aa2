#include "internevo/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace internevo {

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(capacityBytes_));
}

Status Arena::create(std::int64_t bytes) {
  if (base_ != nullptr) return {StatusCode::internal, "the arena exists already"};
  if (bytes <= 0) {
    return {StatusCode::badConfig, "arena size " + std::to_string(bytes) + " must be positive"};
  }
  void* memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return {StatusCode::outOfMemory, "cannot map an arena of " + std::to_string(bytes) +
                                         " bytes; use a plan that needs less memory"};
  }
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  base_ = memory;
  capacityBytes_ = bytes;
  return Status::success();
}

Status Arena::at(std::int64_t offsetBytes, std::int64_t bytes, void** result) {
  const bool inside = offsetBytes >= 0 && bytes >= 0 && offsetBytes <= capacityBytes_ &&
                      bytes <= capacityBytes_ - offsetBytes;
  if (base_ == nullptr || !inside || offsetBytes % kAlignmentBytes != 0) {
    return {StatusCode::outOfMemory, "range of " + std::to_string(bytes) + " bytes at offset " +
                                         std::to_string(offsetBytes) + " is not an aligned part of the arena of " +
                                         std::to_string(capacityBytes_) + " bytes"};
  }
  *result = static_cast<std::byte*>(base_) + offsetBytes;
  highWaterBytes_ = std::max(highWaterBytes_, offsetBytes + bytes);
  return Status::success();
}

}  // namespace internevo
