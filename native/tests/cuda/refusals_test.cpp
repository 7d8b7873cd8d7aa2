// What the CUDA backend refuses, and what it only finds out when its work is done.
#include <gtest/gtest.h>

#include "emulator/model_backend.h"
#include "internevo/device_library.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

View viewOf(std::vector<std::int32_t>& values) { return {values.data(), DataType::int32}; }

TEST(DeviceErrors, ATokenOutsideTheVocabularyShowsWhenTheWorkIsDone) {
  const Buffer table(DataType::float32, Values(40)), y(DataType::float32, Values(8, 3.)),
      gTable(DataType::float32, Values(40));
  std::vector<std::int32_t> tokens{3, 10};
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->embeddingForward({2, 4, 10}, viewOf(tokens), table.view(), y.view()).ok());
  EXPECT_EQ(backend->settle().code(), StatusCode::dataError);
  EXPECT_EQ(y.values()[4], 0.0);
  EXPECT_TRUE(backend->settle().ok()) << "an error is told once";
  tokens[1] = -1;
  ASSERT_TRUE(backend->embeddingBackward({2, 4, 10}, viewOf(tokens), y.view(), gTable.view()).ok());
  EXPECT_EQ(backend->settle().code(), StatusCode::dataError);
}

TEST(DeviceErrors, ATargetOutsideTheVocabularyShowsWhenTheWorkIsDone) {
  const auto backend = createTestBackend(1);
  std::vector<std::int32_t> targets{0, -2, 1};
  const Buffer x(DataType::float32, randomValues(12, 1)), w(DataType::float32, randomValues(20, 2)),
      scratch(backend->headLossWorkspaceBytes({3, 4, 5, 3}));
  ExactSum loss;
  ASSERT_TRUE(
      backend
          ->headLoss({3, 4, 5, 3}, x.view(), w.view(), viewOf(targets), 1, &loss, {}, {}, scratch.workspace())
          .ok());
  EXPECT_EQ(backend->settle().code(), StatusCode::dataError);
  targets[1] = 5;
  ASSERT_TRUE(
      backend
          ->headLoss({3, 4, 5, 3}, x.view(), w.view(), viewOf(targets), 1, &loss, {}, {}, scratch.workspace())
          .ok());
  EXPECT_EQ(backend->settle().code(), StatusCode::dataError);
}

TEST(DeviceErrors, APositionOutsideTheTableShowsWhenTheWorkIsDone) {
  const Buffer table(DataType::float32, Values(16)), x(DataType::float32, Values(16));
  const auto backend = createTestBackend(1);
  for (const std::int32_t wrong : {-1, 4}) {
    std::vector<std::int32_t> positions{0, wrong};
    ASSERT_TRUE(
        backend->ropeForward({2, 1, 8, 0, 4, 0, viewOf(positions)}, table.view(), table.view(), x.view())
            .ok());
    EXPECT_EQ(backend->settle().code(), StatusCode::dataError);
  }
}

TEST(DeviceErrors, ProductsOfTwoTypesAndHeadsThatAreTooLargeAreRefused) {
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::float32, Values(1024)), w(DataType::bfloat16, Values(1024)),
      scratch(backend->linearWorkspaceBytes());
  const Status types = backend->linearForward({4, 8, 8}, x.view(), w.view(), x.view(), scratch.workspace());
  EXPECT_EQ(types.code(), StatusCode::badConfig);
  EXPECT_NE(types.message().find("w must have the type of x"), std::string::npos) << types.message();
  const Status head =
      backend->attentionForward({1, 1, 1, 1, 512}, x.view(), x.view(), x.view(), x.view(), x.view(), {});
  EXPECT_NE(head.message().find("headSize is 512"), std::string::npos) << head.message();
}

TEST(DeviceSizes, OfAPlanAreThoseOfTheBackend) {
  const auto backend = createTestBackend(1);
  const BackendSizes& planned = cudaBackendSizes();
  const AttentionShape attention{2, 100, 4, 2, 64};
  AttentionBlockShape block{attention};
  block.keySequence = 50;
  EXPECT_EQ(planned.linearWorkspaceBytes(), backend->linearWorkspaceBytes());
  EXPECT_EQ(planned.attentionWorkspaceBytes(attention), backend->attentionWorkspaceBytes(attention));
  EXPECT_EQ(planned.attentionBlockWorkspaceBytes(block), backend->attentionBlockWorkspaceBytes(block));
  EXPECT_EQ(planned.lossChunkRows(), backend->lossChunkRows());
  EXPECT_EQ(planned.headLossWorkspaceBytes({300, 8, 50, 256}),
            backend->headLossWorkspaceBytes({300, 8, 50, 256}));
}

using DeviceMemoryDeathTest = testing::Test;

/// The guard by which the trainer's tests know that it touches the device's memory only through the backend.
TEST(DeviceMemoryDeathTest, GuardedMemoryCannotBeReadByTheProgram) {
  const auto backend = cuda::createModelBackend(true);
  void* data = nullptr;
  ASSERT_TRUE(backend->memory().allocate(4096, &data).ok());
  std::vector<float> values(16, 2.f), back(16);
  ASSERT_TRUE(backend->memory().upload(data, values.data(), 64).ok());
  const View view{data, DataType::float32};
  ASSERT_TRUE(backend->add(16, view, view, view).ok());
  ASSERT_TRUE(backend->memory().download(back.data(), data, 64).ok());
  EXPECT_EQ(back, std::vector<float>(16, 4.f));
  EXPECT_EXIT(static_cast<void>(*static_cast<volatile float*>(data)), testing::KilledBySignal(SIGSEGV), "");
  backend->memory().release(data, 4096);
}

}  // namespace
}  // namespace internevo::test
