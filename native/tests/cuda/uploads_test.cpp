// What the program gives to the device while that computes.
#include <gtest/gtest.h>

#include "backend/cuda/staged_uploads.h"
#include "emulator/model_backend.h"

namespace internevo::test {
namespace {

/// Memory of a guarded model, whose calls return before their work is done.
struct OnTheDevice {
  explicit OnTheDevice(std::int64_t size) : bytes(size) {
    EXPECT_TRUE(backend->memory().allocate(bytes, &data).ok());
  }
  ~OnTheDevice() { backend->memory().release(data, bytes); }

  const std::int64_t bytes;
  const std::unique_ptr<Backend> backend = cuda::createModelBackend(true);
  void* data = nullptr;
};

/// More of them than there are places, of sizes that fall and grow, each array overwritten as soon as the call is back.
TEST(Uploads, AreOfTheBytesThatTheCallWasGiven) {
  constexpr std::int64_t kEach = 1000;
  constexpr int kUploads = 5 * cuda::StagedUploads::kPlaces + 3;
  OnTheDevice there(4 * kEach * kUploads);
  std::vector<std::int32_t> host(kEach);
  std::vector<std::int32_t> expected(static_cast<std::size_t>(kEach * kUploads)), found(expected.size());
  for (int i = 0; i < kUploads; ++i) {
    const std::int64_t count = i % 3 == 0 ? kEach : kEach / (1 + i % 7);
    for (std::int64_t e = 0; e < count; ++e)
      host[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(i * kEach + e + 1);
    std::copy_n(host.begin(), count, expected.begin() + i * kEach);
    ASSERT_TRUE(there.backend->memory()
                    .upload(static_cast<std::int32_t*>(there.data) + i * kEach, host.data(), 4 * count)
                    .ok());
    std::fill(host.begin(), host.end(), -1);
  }
  ASSERT_TRUE(there.backend->memory().download(found.data(), there.data, there.bytes).ok());
  EXPECT_EQ(found, expected);
}

/// The next micro-batch takes the place of one that is still being read: in the order of the calls.
TEST(Uploads, ComeAfterWhatReadsTheOldOnes) {
  constexpr std::int64_t kElements = 4096;
  OnTheDevice there(3 * 4 * kElements);
  MemorySpace& memory = there.backend->memory();
  auto* const batch = static_cast<float*>(there.data);
  float* const sum = batch + kElements;
  std::vector<float> host(kElements), found(kElements);
  float total = 0;
  for (int i = 1; i <= 3 * cuda::StagedUploads::kPlaces; ++i) {
    std::fill(host.begin(), host.end(), static_cast<float>(i));
    total += static_cast<float>(i);
    ASSERT_TRUE(memory.upload(batch, host.data(), 4 * kElements).ok());
    ASSERT_TRUE(
        there.backend->accumulate(kElements, {batch, DataType::float32}, {sum, DataType::float32}).ok());
  }
  ASSERT_TRUE(memory.download(found.data(), sum, 4 * kElements).ok());
  EXPECT_EQ(found, std::vector<float>(kElements, total));
}

TEST(Uploads, OfMoreThanAPlaceHoldsAreWholeToo) {
  constexpr std::int64_t kBytes = cuda::StagedUploads::kLargestBytes + 64;
  OnTheDevice there(kBytes);
  std::vector<std::uint8_t> host(kBytes), found(kBytes);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::uint8_t>(i * 2654435761u >> 24);
  ASSERT_TRUE(there.backend->memory().upload(there.data, host.data(), kBytes).ok());
  ASSERT_TRUE(there.backend->memory().download(found.data(), there.data, kBytes).ok());
  EXPECT_EQ(host, found);
}

/// A pinned place of which it is known when it may be used again, and a device that does nothing until it is told.
class HeldStreams final : public cuda::Streams {
 public:
  Status createEvent(Event* made) override { return *made = this, Status::success(); }
  Status record(Event, const cuda::Queue&) override { return Status::success(); }
  Status wait(const cuda::Queue&, Event) override { return Status::success(); }
  Status createTimedEvent(Event* made) override { return createEvent(made); }
  Status elapsed(Event, Event, double*) override { return Status::success(); }
  Status happened(Event, bool* result) override { return ++asked, *result = true, Status::success(); }
  Status finished(const cuda::Queue&, bool* result) override {
    return ++asked, *result = true, Status::success();
  }
  int asked = 0;

 protected:
  Status make(cuda::Queue*) override { return Status::success(); }
  Status block(const cuda::Queue&) override { return ++asked, Status::success(); }
};
class PlainPinned final : public cuda::PinnedMemory {
 public:
  Status allocate(std::int64_t bytes, void** result) override { return hostMemory().allocate(bytes, result); }
  void release(void* data, std::int64_t bytes) noexcept override { hostMemory().release(data, bytes); }
  Status copy(void*, const void*, std::int64_t, const cuda::Queue&) override { return Status::success(); }
  Status upload(void*, const void*, std::int64_t, const cuda::Queue&) override { return Status::success(); }
};

TEST(Uploads, WaitForNothingUntilEveryPlaceIsTaken) {
  HeldStreams streams;
  PlainPinned pinned;
  const std::int32_t token = 1;
  std::int32_t target = 0;
  {
    cuda::StagedUploads uploads(streams, pinned);
    for (int i = 0; i < cuda::StagedUploads::kPlaces; ++i)
      ASSERT_TRUE(uploads.upload(&target, &token, 4, {}).ok());
    EXPECT_EQ(streams.asked, 0);
    ASSERT_TRUE(uploads.upload(&target, &token, 4, {}).ok());
    EXPECT_EQ(streams.asked, 1) << "for the first of them alone";
  }
}

}  // namespace
}  // namespace internevo::test
