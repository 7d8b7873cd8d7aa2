// Collectives on the device's memory, by the model of NCCL, against those of MPI on the process's: the same bits.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include "../comm/support.h"
#include "../installed.h"
#include "internevo/device_library.h"

namespace internevo::test {
namespace {

/// Groups of all ranks, on a device that is opened for the test.
class Device {
 public:
  explicit Device(bool deterministic) {
    setenv("INTERNEVO_CUDA_LIBRARY", built::kModelLibrary, 1);
    // One of the two a process: which is what a test of all ranks' numbers has.
    setenv("INTERNEVO_NCCL_LIBRARY", worldSize() % 2 == 0 ? built::kNcclModel : built::kNcclModelOld, 1);
    const Status opened = openCudaBackend({worldRank(), deterministic}, &backend_);
    EXPECT_TRUE(opened.ok()) << opened.message();
    if (worldSize() == 1) return;
    std::vector<char> id(DeviceGroups::kIdBytes);
    EXPECT_TRUE(backend_->groups()->createId(worldRank() == 0 ? id.data() : nullptr).ok());
    MPI_Bcast(id.data(), DeviceGroups::kIdBytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    const Status started = backend_->groups()->start(id.data(), worldRank(), worldSize());
    EXPECT_TRUE(started.ok()) << started.message();
  }
  Communicator group(const std::vector<int>& ranks, int tag, bool messages = false) {
    Communicator result = makeGroup(ranks, tag);
    std::unique_ptr<DeviceGroup> made;
    const Status status = backend_->groups()->makeGroup(*std::min_element(ranks.begin(), ranks.end()),
                                                        result.index(), result.size(), messages, &made);
    EXPECT_TRUE(status.ok()) << status.message();
    result.moveToDevice(std::move(made));
    return result;
  }
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

/// Memory of the device with the content of a tensor of the test's.
class OnDevice {
 public:
  OnDevice(Device& device, std::vector<std::byte> content)
      : device_(device), bytes_(static_cast<std::int64_t>(content.size())) {
    EXPECT_TRUE(memory().allocate(bytes_ + 1, &data_).ok());
    EXPECT_TRUE(memory().upload(data_, content.data(), bytes_).ok());
  }
  OnDevice(Device& device, std::int64_t bytes)
      : OnDevice(device, std::vector<std::byte>(static_cast<std::size_t>(bytes))) {}
  ~OnDevice() { memory().release(data_, bytes_ + 1); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  View view(DataType type) const { return {data_, type}; }
  Workspace workspace() const { return {data_, bytes_}; }
  std::vector<std::byte> content() const {
    std::vector<std::byte> result(static_cast<std::size_t>(bytes_));
    EXPECT_TRUE(memory().download(result.data(), data_, bytes_).ok());
    return result;
  }

 private:
  MemorySpace& memory() const { return device_.backend().memory(); }
  Device& device_;
  std::int64_t bytes_;
  void* data_ = nullptr;
};

Tensor randomTensor(DataType type, std::int64_t elements, int seed) {
  std::mt19937 engine(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  Tensor result(type, elements);
  for (std::int64_t i = 0; i < elements; ++i) result.set(i, normal(engine));
  return result;
}

const std::int64_t kSizes[] = {1, 7, 64, 1000};

TEST(DeviceGroups, SumsHaveTheBitsOfMpisTree) {
  Device device(true);
  Communicator host = makeGroup(reversedRanks(), 1), group = device.group(reversedRanks(), 2);
  // Little room: sums go in several pieces.
  Scratch scratch(host.reduceWorkspaceBytes());
  OnDevice room(device, 64 * std::max(2, worldSize()));
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    for (const std::int64_t n : kSizes) {
      Tensor whole = randomTensor(type, n, worldRank());
      OnDevice onDevice(device, whole.bytes);
      ASSERT_TRUE(host.allReduce(whole.view(), n, ReduceOperation::sum, scratch.workspace()).ok());
      ASSERT_TRUE(group.allReduce(onDevice.view(type), n, ReduceOperation::sum, room.workspace()).ok());
      EXPECT_EQ(onDevice.content(), whole.bytes) << n;

      Tensor input = randomTensor(type, n * worldSize(), 10 + worldRank()), part(type, n);
      OnDevice from(device, input.bytes), to(device, n * bytesPerElement(type));
      ASSERT_TRUE(host.reduceScatter(input.view(), part.view(), n, scratch.workspace()).ok());
      ASSERT_TRUE(group.reduceScatter(from.view(type), to.view(type), n, room.workspace()).ok());
      EXPECT_EQ(to.content(), part.bytes) << n;
      // Into its own chunk.
      ASSERT_TRUE(
          group.reduceScatter(from.view(type), from.view(type).offset(group.index() * n), n, room.workspace())
              .ok());
      const auto content = from.content();
      const auto begin = content.begin() + group.index() * n * bytesPerElement(type);
      EXPECT_TRUE(std::equal(part.bytes.begin(), part.bytes.end(), begin)) << n;
    }
  }
}

TEST(DeviceGroups, WithoutDeterminismSumsAreTheLibrarys) {
  Device device(false);
  Communicator group = device.group(allRanks(), 2);
  constexpr std::int64_t kElements = 300;
  std::vector<float> values(kElements, 1.f + static_cast<float>(worldRank()));
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  OnDevice whole(device, std::vector<std::byte>(bytes, bytes + 4 * kElements)),
      part(device, 4 * (kElements / worldSize()));
  ASSERT_TRUE(group
                  .reduceScatter(whole.view(DataType::float32), part.view(DataType::float32),
                                 kElements / worldSize(), {})
                  .ok());
  ASSERT_TRUE(group.allReduce(whole.view(DataType::float32), kElements, ReduceOperation::sum, {}).ok());
  const float sum = static_cast<float>(worldSize() * (worldSize() + 1)) / 2;
  for (const OnDevice* each : {&whole, &part}) {
    const auto content = each->content();
    const auto* const floats = reinterpret_cast<const float*>(content.data());
    for (std::size_t i = 0; i < content.size() / 4; ++i) ASSERT_EQ(floats[i], sum);
  }
  std::int64_t largest = worldRank();
  const auto* const word = reinterpret_cast<const std::byte*>(&largest);
  OnDevice numbers(device, std::vector<std::byte>(word, word + 8));
  ASSERT_TRUE(group.allReduce(numbers.view(DataType::int64), 1, ReduceOperation::maximum, {}).ok());
  EXPECT_EQ(*reinterpret_cast<const std::int64_t*>(numbers.content().data()), worldSize() - 1);
}

TEST(DeviceGroups, MovesAreThoseOfMpi) {
  Device device(true);
  Communicator host = makeGroup(reversedRanks(), 1), group = device.group(reversedRanks(), 2);
  for (const std::int64_t n : kSizes) {
    const DataType type = DataType::bfloat16;
    const std::int64_t bytes = n * bytesPerElement(type);
    Tensor own = randomTensor(type, n, worldRank()), all(type, n * worldSize());
    OnDevice ownDevice(device, own.bytes), allDevice(device, bytes * worldSize());
    ASSERT_TRUE(host.allGather(own.view(), all.view(), n).ok());
    ASSERT_TRUE(group.allGather(ownDevice.view(type), allDevice.view(type), n).ok());
    EXPECT_EQ(allDevice.content(), all.bytes);
    Tensor blocks = randomTensor(type, n * worldSize(), 20 + worldRank()), arrived(type, n * worldSize());
    OnDevice blocksDevice(device, blocks.bytes), arrivedDevice(device, bytes * worldSize());
    ASSERT_TRUE(host.allToAll(blocks.view(), arrived.view(), n).ok());
    ASSERT_TRUE(group.allToAll(blocksDevice.view(type), arrivedDevice.view(type), n).ok());
    EXPECT_EQ(arrivedDevice.content(), arrived.bytes);
    for (int root = 0; root < worldSize(); ++root) {
      ASSERT_TRUE(host.broadcast(own.view(), n, root).ok());
      ASSERT_TRUE(group.broadcast(ownDevice.view(type), n, root).ok());
      EXPECT_EQ(ownDevice.content(), own.bytes);
    }
  }
}

TEST(DeviceGroups, UlyssesMovesAndTheirReplicasAreThoseOfMpi) {
  Device device(true);
  Communicator host = makeGroup(allRanks(), 1), group = device.group(allRanks(), 2);
  for (const std::int64_t heads :
       {std::int64_t{1}, std::int64_t{worldSize()}, std::int64_t{2 * worldSize()}}) {
    const UlyssesShape shape{2, 6 * worldSize(), heads, 8, heads * 8 + 3, 0};
    const DataType type = DataType::float32;
    const std::int64_t rows = 2 * 6, local = ulyssesLocalHeads(heads, worldSize());
    const std::int64_t tokens = rows * shape.sequenceSplitStride, onHeads = 2 * 6 * worldSize() * local * 8;
    Tensor source = randomTensor(type, tokens, worldRank()), target(type, onHeads),
           back = randomTensor(type, tokens, 3);
    Scratch scratch(ulyssesWorkspaceBytes(shape, worldSize(), type));
    OnDevice sourceDevice(device, source.bytes), targetDevice(device, target.bytes),
        backDevice(device, back.bytes), room(device, ulyssesWorkspaceBytes(shape, worldSize(), type));
    ASSERT_TRUE(ulyssesToHeads(host, shape, source.view(), target.view(), scratch.workspace()).ok());
    ASSERT_TRUE(
        ulyssesToHeads(group, shape, sourceDevice.view(type), targetDevice.view(type), room.workspace())
            .ok());
    EXPECT_EQ(targetDevice.content(), target.bytes);
    ASSERT_TRUE(ulyssesToSequence(host, shape, target.view(), back.view(), scratch.workspace()).ok());
    ASSERT_TRUE(
        ulyssesToSequence(group, shape, targetDevice.view(type), backDevice.view(type), room.workspace())
            .ok());
    EXPECT_EQ(backDevice.content(), back.bytes);
  }
}

/// A receive that is started before what its sender waits for would hold up everything on a stream that is shared.
TEST(DeviceGroupsOfSeveral, MessagesBothWaysWaitForNobodyElse) {
  Device device(true);
  Communicator group = device.group(allRanks(), 2, true);
  const int size = worldSize(), next = (worldRank() + 1) % size, before = (worldRank() + size - 1) % size;
  constexpr std::int64_t kElements = 500;
  const auto filled = [](int value) {
    return std::vector<std::byte>(4 * kElements, static_cast<std::byte>(value));
  };
  OnDevice forward(device, filled(worldRank())), backward(device, filled(100 + worldRank())),
      fromBefore(device, 4 * kElements), fromNext(device, 4 * kElements);
  for (int round = 0; round < 3; ++round) {
    Transfer sends[2], receives[2];
    ASSERT_TRUE(
        group.startReceive(fromNext.view(DataType::float32), kElements, next, 2 * round + 1, &receives[1])
            .ok());
    ASSERT_TRUE(
        group.startReceive(fromBefore.view(DataType::float32), kElements, before, 2 * round, &receives[0])
            .ok());
    ASSERT_TRUE(group.startSend(forward.view(DataType::float32), kElements, next, 2 * round, &sends[0]).ok());
    ASSERT_TRUE(Communicator::finish(&receives[0]).ok());
    // What goes back needs what came.
    ASSERT_TRUE(
        device.backend()
            .memory()
            .copy(backward.view(DataType::byte).data, fromBefore.view(DataType::byte).data, 4 * kElements)
            .ok());
    ASSERT_TRUE(
        group.startSend(backward.view(DataType::float32), kElements, before, 2 * round + 1, &sends[1]).ok());
    ASSERT_TRUE(Communicator::finish(&receives[1]).ok());
    for (Transfer& send : sends) ASSERT_TRUE(Communicator::finish(&send).ok());
    EXPECT_EQ(fromBefore.content(), filled(before)) << "round " << round;
    EXPECT_EQ(fromNext.content(), filled(worldRank())) << "round " << round;
  }
  if (size > 3) {
    Transfer transfer;
    EXPECT_EQ(
        group.startSend(forward.view(DataType::float32), 1, (worldRank() + 2) % size, 0, &transfer).code(),
        StatusCode::badConfig);
  }
}

TEST(DeviceGroups, ALaneRunsBesideAndIsWaitedForByEvents) {
  Device device(true);
  Communicator first = device.group(allRanks(), 1), second = device.group(allRanks(), 2);
  constexpr std::int64_t kElements = 700;
  std::vector<float> ones(kElements, 1.f);
  const auto* const bytes = reinterpret_cast<const std::byte*>(ones.data());
  OnDevice x(device, std::vector<std::byte>(bytes, bytes + 4 * kElements)),
      y(device, std::vector<std::byte>(bytes, bytes + 4 * kElements)),
      room(device, first.reduceWorkspaceBytes()), laneRoom(device, first.reduceWorkspaceBytes());
  const auto lane = device.backend().createLane();
  const View a = x.view(DataType::float32), b = y.view(DataType::float32);
  for (int i = 0; i < 4; ++i) {
    const auto ticket = lane->submit(
        [&] { return first.allReduce(a, kElements, ReduceOperation::sum, laneRoom.workspace()); });
    ASSERT_TRUE(second.allReduce(b, kElements, ReduceOperation::sum, room.workspace()).ok());
    ASSERT_TRUE(lane->wait(ticket).ok());
    ASSERT_TRUE(device.backend().accumulate(kElements, a, b).ok());  // needs what both did
  }
  float expected = 1, lanes = 1;
  for (int i = 0; i < 4; ++i)
    lanes *= static_cast<float>(worldSize()), expected = expected * static_cast<float>(worldSize()) + lanes;
  const auto content = y.content();
  EXPECT_EQ(*reinterpret_cast<const float*>(content.data()), expected);
  const auto failing = lane->submit([] { return Status{StatusCode::internal, "a job failed"}; });
  EXPECT_EQ(lane->wait(failing).message(), "a job failed");
  bool ran = false;
  lane->submit([&] { return ran = true, Status::success(); });
  EXPECT_EQ(lane->waitAll().message(), "a job failed");
  EXPECT_FALSE(ran);
}

// ---- registered memory ------------------------------------------------------------------------------------------------

/// How many registered ranges of the library have the first byte of this one.
int registered(const void* data) {
  void* const library = dlopen(std::getenv("INTERNEVO_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  const auto count = library == nullptr ? nullptr
                                        : reinterpret_cast<int (*)(const void*, std::size_t)>(
                                              dlsym(library, "internevoNcclModelRegistered"));
  return count == nullptr ? -1 : count(data, 1);
}
bool hasAll() { return worldSize() % 2 == 0; }  ///< else the library is the old one

TEST(DeviceGroupsOfSeveral, WhatIsAnnouncedIsRegisteredOnceAndUntilItIsWithdrawn) {
  Device device(true);
  Communicator group = device.group(allRanks(), 1), other = device.group(allRanks(), 2);
  OnDevice data(device, 4096);
  const View all = data.view(DataType::byte);
  Announcement first, second, ofOther;
  ASSERT_TRUE(Announcement::make(group.device(), all.data, 4096, &first).ok());
  ASSERT_TRUE(Announcement::make(other.device(), all.data, 4096, &ofOther).ok());
  EXPECT_EQ(registered(all.data), hasAll() ? 2 : 0) << "an old library is gone without";
  if (hasAll()) {
    EXPECT_EQ(Announcement::make(group.device(), all.data, 4096, &second).code(),
              StatusCode::communicationError)
        << "twice";
    EXPECT_EQ(Announcement::make(group.device(), all.offset(64).data, 64, &second).code(),
              StatusCode::communicationError)
        << "inside of another";
    GTEST_FLAG_SET(death_test_style, "fast");
    EXPECT_DEATH(device.backend().memory().release(all.data, 4097),
                 "memory is released that is registered with NCCL");
  }
  // Withdrawn while it is still used: that is waited for.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(group.broadcast(all, 4096, i % worldSize()).ok());
  first = {};
  EXPECT_EQ(registered(all.data), hasAll() ? 1 : 0);
  ofOther = {};
  EXPECT_EQ(registered(all.data), 0);
  ASSERT_TRUE(Announcement::make(group.device(), all.data, 4096, &first).ok()) << "again";
  ASSERT_TRUE(device.backend().settle().ok());
}

TEST(DeviceGroupsOfSeveral, CopyEnginesAreGivenWindowsOfTheLibrarysMemory) {
  setenv("INTERNEVO_NCCL_POLICY", "zero", 1);
  Device device(true);
  unsetenv("INTERNEVO_NCCL_POLICY");
  Communicator host = makeGroup(allRanks(), 1), group = device.group(allRanks(), 2);
  Tensor own = randomTensor(DataType::float32, 100, worldRank()), whole(DataType::float32, 100 * worldSize());
  OnDevice from(device, own.bytes), to(device, 400 * worldSize());
  Announcement of, into;
  ASSERT_TRUE(Announcement::make(group.device(), from.view(DataType::byte).data, 400, &of).ok());
  ASSERT_TRUE(
      Announcement::make(group.device(), to.view(DataType::byte).data, 400 * worldSize(), &into).ok());
  EXPECT_EQ(registered(to.view(DataType::byte).data), hasAll() ? 1 : 0);
  ASSERT_TRUE(host.allGather(own.view(), whole.view(), 100).ok());
  ASSERT_TRUE(group.allGather(from.view(DataType::float32), to.view(DataType::float32), 100).ok());
  EXPECT_EQ(to.content(), whole.bytes);
  if (!hasAll()) return;
  // Not of one size on all ranks.
  OnDevice more(device, 4096);
  Announcement none;
  EXPECT_EQ(Announcement::make(group.device(), more.view(DataType::byte).data, 64 * (worldRank() + 1), &none)
                .code(),
            StatusCode::communicationError);
}

TEST(DeviceGroupsOfSeveral, RanksOfNoGroupStandAside) {
  Device device(true);
  OnDevice out(device, std::vector<std::byte>(64, static_cast<std::byte>(worldRank()))), in(device, 64);
  if (worldRank() > 1) {
    std::unique_ptr<DeviceGroup> none;
    EXPECT_TRUE(device.backend().groups()->makeGroup(-1, 0, 2, true, &none).ok());
    EXPECT_EQ(none, nullptr);
    return;
  }
  Communicator pair = device.group({0, 1}, 1, true);
  Transfer sent, received;
  ASSERT_TRUE(pair.startReceive(in.view(DataType::byte), 64, 1 - pair.index(), 0, &received).ok());
  ASSERT_TRUE(pair.startSend(out.view(DataType::byte), 64, 1 - pair.index(), 0, &sent).ok());
  ASSERT_TRUE(Communicator::finish(&received).ok() && Communicator::finish(&sent).ok());
  EXPECT_EQ(in.content(), std::vector<std::byte>(64, static_cast<std::byte>(1 - worldRank())));
}

// ---- clocks and copies --------------------------------------------------------------------------------------------------

/// A host's clock would count what was called before, and is still under way.
TEST(DeviceClock, AStopwatchSeesItsOwnWorkOnly) {
  Device device(true);
  Backend& backend = device.backend();
  constexpr std::int64_t kElements = 1 << 14;
  OnDevice data(device, 4 * kElements);
  const View x = data.view(DataType::float32);
  const auto many = [&] {
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(backend.accumulate(kElements, x, x).ok());
  };
  const auto watch = backend.createStopwatch();
  double alone = 0, least = HUGE_VAL;
  EXPECT_EQ(watch->stop(&alone).code(), StatusCode::internal) << "before it was started";
  ASSERT_TRUE(watch->start().ok());
  many();
  ASSERT_TRUE(watch->stop(&alone).ok());
  for (int i = 0; i < 3; ++i) {  // the least of them: the device's thread, too, is put aside now and then
    double seconds = 0;
    many();
    ASSERT_TRUE(watch->start().ok());
    ASSERT_TRUE(backend.accumulate(64, x, x).ok());
    ASSERT_TRUE(watch->stop(&seconds).ok());
    EXPECT_GT(seconds, 0);
    least = std::min(least, seconds);
  }
  EXPECT_LT(least, alone / 2);
}

TEST(DeviceCopies, AreOfTheMomentAndWhatOverwritesThemWaits) {
  for (const char* const order : {"first", "last", "mixed"}) {
    setenv("INTERNEVO_MODEL_STREAMS", order, 1);
    Device device(true);
    unsetenv("INTERNEVO_MODEL_STREAMS");
    Backend& backend = device.backend();
    constexpr std::int64_t kElements = 500;
    const std::vector<float> ones(kElements, 1.f);
    const auto* const bytes = reinterpret_cast<const std::byte*>(ones.data());
    OnDevice data(device, std::vector<std::byte>(bytes, bytes + 4 * kElements));
    const View x = data.view(DataType::float32);
    const auto copies = backend.createBackgroundCopies();
    void* host = nullptr;
    ASSERT_TRUE(copies->allocate(4 * kElements, &host).ok());
    ASSERT_TRUE(copies->wait().ok() && copies->settle().ok()) << "nothing to wait for";
    float expected = 1;
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(backend.accumulate(kElements, x, x).ok());
      expected *= 2;
      ASSERT_TRUE(copies->copy(host, x.data, 4 * kElements).ok());
      ASSERT_TRUE(copies->seal().ok());
      ASSERT_TRUE(copies->settle().ok());
      ASSERT_TRUE(backend.accumulate(kElements, x, x).ok());
      Status waited;
      std::thread([&] { waited = copies->wait(); }).join();
      ASSERT_TRUE(waited.ok()) << waited.message();
      for (std::int64_t i = 0; i < kElements; ++i)
        ASSERT_EQ(static_cast<const float*>(host)[i], expected) << order;
      expected *= 2;
    }
  }
}

TEST(DeviceGroupsOfSeveral, AnAbandonedRunEndsWhoeverWaits) {
  Device device(true);
  Communicator group = device.group(allRanks(), 1);
  OnDevice data(device, 4096);
  MPI_Barrier(MPI_COMM_WORLD);
  Status status;
  if (worldRank() != 0) {  // rank 0 never comes
    status = group.allGather(data.view(DataType::byte), data.view(DataType::byte), 0);
    ASSERT_TRUE(group.broadcast(data.view(DataType::byte), 4096, 0).ok());
    std::thread other([&] { device.backend().groups()->abort(); });
    status = device.backend().settle();
    other.join();
    EXPECT_EQ(status.code(), StatusCode::communicationError) << status.message();
    EXPECT_EQ(group.broadcast(data.view(DataType::byte), 4096, 0).code(), StatusCode::communicationError);
  } else {
    device.backend().groups()->abort();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace internevo::test
