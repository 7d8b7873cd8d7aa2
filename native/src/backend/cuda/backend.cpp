#include "backend/cuda/backend.h"

#include <string>

#include "backend/checks.h"
#include "backend/cuda/communication_share.h"
#include "backend/cuda/stream_lane.h"
#include "backend/cuda/stream_moments.h"
#include "backend/cuda/stream_stopwatch.h"

namespace internevo::cuda {

CudaBackend::~CudaBackend() {
  if (table_ != nullptr) memory().release(table_, kTableWords * 8);
}

std::vector<LibraryVersion> CudaBackend::libraries() {
  std::vector<LibraryVersion> all = device_.libraries;
  if (device_.attentionLibrary != nullptr) all.push_back({"cudnn", device_.attentionLibrary->version()});
  // Opened for its version only where nothing else asked for it: a run on one GPU goes without.
  if (const nccl::Api* api = nullptr; nccl::load(&api).ok())
    all.push_back({"nccl", nccl::versionText(api->version)});
  return all;
}

std::unique_ptr<Lane> CudaBackend::createLane() {
  return std::make_unique<StreamLane>(*device_.streams, *device_.current);
}

std::unique_ptr<Stopwatch> CudaBackend::createStopwatch() {
  return std::make_unique<StreamStopwatch>(*device_.streams, *device_.current);
}

std::unique_ptr<Moments> CudaBackend::createMoments(std::int64_t capacity) {
  return std::make_unique<StreamMoments>(*device_.streams, *device_.current, capacity);
}

std::unique_ptr<BackgroundCopies> CudaBackend::createBackgroundCopies() {
  return std::make_unique<StreamCopies>(*device_.streams, *device_.current, *device_.pinned);
}

std::unique_ptr<HostCopies> CudaBackend::createHostCopies() {
  return std::make_unique<StreamHostCopies>(*device_.streams, *device_.current, *device_.pinned);
}

int CudaBackend::warpgroupBlocks() const {
  return shares_ ? blocksBesideCommunication(device_.warpgroupBlocks) : device_.warpgroupBlocks;
}

void CudaBackend::shareWithCommunication(bool shares) {
  shares_ = shares;
  device_.products->setMultiprocessors(shares ? blocksBesideCommunication(device_.multiprocessors) : 0);
}

Status CudaBackend::start() {
  void* table = nullptr;
  INTERNEVO_RETURN_IF_ERROR(memory().allocate(kTableWords * 8, &table));
  table_ = static_cast<std::int64_t*>(table);
  return Status::success();
}

Status CudaBackend::sumOf(ExactSum* sum, std::int64_t** words) {
  int place = 0;
  while (place < sumsUnderWay_ && sums_[static_cast<std::size_t>(place)] != sum) ++place;
  if (place == kSums) {
    return {StatusCode::internal,
            "more than " + std::to_string(kSums) + " sums are under way; settle() is missing"};
  }
  if (place == sumsUnderWay_) sums_[static_cast<std::size_t>(sumsUnderWay_++)] = sum;
  *words = table_ + place * ExactSum::kWords;
  return Status::success();
}

Status CudaBackend::settle() {
  std::array<std::int64_t, kTableWords> words{};
  INTERNEVO_RETURN_IF_ERROR(device_.streams->synchronize(queue()));
  INTERNEVO_RETURN_IF_ERROR(memory().download(words.data(), table_, kTableWords * 8));
  INTERNEVO_RETURN_IF_ERROR(memory().zero(table_, kTableWords * 8));
  for (int i = 0; i < sumsUnderWay_; ++i) {
    ExactSum part;
    for (int w = 0; w < ExactSum::kWords; ++w) {
      part.words[static_cast<std::size_t>(w)] = words[static_cast<std::size_t>(i * ExactSum::kWords + w)];
    }
    sums_[static_cast<std::size_t>(i)]->add(part);
  }
  sumsUnderWay_ = 0;
  if (words.back() == 0) return Status::success();
  return {StatusCode::dataError,
          std::to_string(words.back()) +
              " tokens, targets or positions given to the device are outside of the vocabulary or "
              "the sequence; what was computed with them is not valid"};
}

}  // namespace internevo::cuda
