#include "emulator/trace.h"

#include <algorithm>
#include <utility>

namespace internevo::cuda::model {

namespace {

constexpr unsigned char kRead = 1, kWritten = 2;
constexpr std::size_t kBlock = 512;  // bytes

void append(std::vector<ByteRange>* ranges, std::uintptr_t at) {
  if (!ranges->empty() && ranges->back().end == at) {
    ++ranges->back().end;
  } else {
    ranges->push_back({at, at + 1});
  }
}

}  // namespace

void LaunchTrace::addMemory(const void* data, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t blocks = (static_cast<std::size_t>(bytes) + kBlock - 1) / kBlock;
  memories_.push_back({reinterpret_cast<std::uintptr_t>(data),
                       std::vector<unsigned char>(blocks * kBlock),
                       std::vector<bool>(blocks),
                       {}});
}

void LaunchTrace::removeMemory(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  std::erase_if(memories_, [&](const Memory& memory) { return memory.begin == begin; });
}

std::int64_t LaunchTrace::add(LaunchStep step) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
  return static_cast<std::int64_t>(steps_.size()) - 1;
}

std::vector<LaunchStep> LaunchTrace::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

LaunchTrace::Doing::Doing(LaunchTrace* trace, std::int64_t step)
    : before_(current_), trace_(trace), step_(step) {
  if (trace_ == nullptr) return;
  trace_->mutex_.lock();
  current_ = trace_;
}

LaunchTrace::Doing::~Doing() {
  if (trace_ == nullptr) return;
  trace_->collect(step_);
  current_ = before_;
  trace_->mutex_.unlock();
}

void LaunchTrace::touch(std::uintptr_t begin, std::int64_t bytes, bool writes) {
  const unsigned char bit = writes ? kWritten : kRead;
  for (Memory& memory : memories_) {
    if (begin < memory.begin || begin - memory.begin >= memory.touched.size()) continue;
    const std::size_t first = begin - memory.begin,
                      last = std::min(memory.touched.size(), first + static_cast<std::size_t>(bytes));
    for (std::size_t i = first; i < last; ++i)
      memory.touched[i] = static_cast<unsigned char>(memory.touched[i] | bit);
    for (std::size_t block = first / kBlock; block * kBlock < last; ++block) {
      if (!memory.marked[block]) memory.marked[block] = true, memory.blocks.push_back(block);
    }
    return;
  }
}

/// Bytes that an operation touches in several turns are all its step's.
void LaunchTrace::collect(std::int64_t number) {
  LaunchStep& step = steps_[static_cast<std::size_t>(number)];
  for (Memory& memory : memories_) {
    std::sort(memory.blocks.begin(), memory.blocks.end());
    for (const std::size_t block : memory.blocks) {
      unsigned char* const touched = memory.touched.data() + block * kBlock;
      for (std::size_t i = 0; i < kBlock; ++i) {
        const std::uintptr_t at = memory.begin + block * kBlock + i;
        if ((touched[i] & kRead) != 0) append(&step.reads, at);
        if ((touched[i] & kWritten) != 0) append(&step.writes, at);
      }
      std::fill(touched, touched + kBlock, static_cast<unsigned char>(0));
      memory.marked[block] = false;
    }
    memory.blocks.clear();
  }
}

}  // namespace internevo::cuda::model
