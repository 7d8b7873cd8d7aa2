// Saved under one plan, loaded under another: the same bits of every logical element, the same data, the same losses.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "lattice.h"
#include "support.h"
#include "trainer/checkpoint.h"

namespace internevo::trainer::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

int worldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int worldSize() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// The first rank's directory, on every rank; removed by it.
class SharedDirectory {
 public:
  SharedDirectory() {
    if (worldRank() == 0) own_.emplace();
    std::array<char, 512> path{};
    if (own_) std::strncpy(path.data(), own_->path().c_str(), path.size() - 1);
    MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = path.data();
  }
  ~SharedDirectory() { MPI_Barrier(MPI_COMM_WORLD); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::optional<TemporaryDirectory> own_;
  std::string path_;
};

/// Every logical tensor's bits, put together element by element from the index of the manifest and nothing else.
std::map<std::string, std::vector<std::uint32_t>> elementsOf(const std::string& directory) {
  const Json content = Json::parse(readFile(directory + "/manifest.json"))["content"];
  std::map<std::string, std::vector<std::uint32_t>> tensors;
  std::map<std::string, std::int64_t> columns;
  for (const Json& tensor : content["tensors"]) {
    std::int64_t elements = 1;
    for (const Json& size : tensor["shape"])
      elements *= size.get<std::int64_t>(), columns[tensor["name"]] = size;
    for (const Json& holds : content["holds"]) {
      tensors[tensor["name"].get<std::string>() + "." + holds.get<std::string>()].assign(
          static_cast<std::size_t>(elements), 0x7fc00001);
    }
  }
  for (const Json& file : content["files"]) {
    const std::string bytes = readFile(directory + "/" + file["name"].get<std::string>());
    for (const Json& piece : file["pieces"]) {
      const std::int64_t row = piece["rectangle"][0], column = piece["rectangle"][1],
                         width = piece["rectangle"][3];
      const std::int64_t begin = piece["range"][0], end = piece["range"][1];
      for (std::size_t holds = 0; holds < content["holds"].size(); ++holds) {
        auto& target =
            tensors[piece["tensor"].get<std::string>() + "." + content["holds"][holds].get<std::string>()];
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t element = (row + i / width) * columns[piece["tensor"]] + column + i % width;
          std::memcpy(&target[static_cast<std::size_t>(element)],
                      bytes.data() + piece["offsets"][holds].get<std::int64_t>() + 4 * (i - begin), 4);
        }
      }
    }
  }
  return tensors;
}

PlanConfig planOf(std::int64_t b, int pp, int dp, int tp, int sp, int ps, int gs, int oss, bool a = false,
                  int chunks = 1) {
  PlanConfig p;
  p.microBatchSize = b, p.microBatches = 8 / b / dp, p.recompute = a;
  p.pipelineParallel = pp, p.dataParallel = dp, p.tensorParallel = tp, p.sequenceParallel = sp;
  p.parameterSharding = ps, p.gradientSharding = gs, p.optimizerStateSharding = oss,
  p.pipelineChunks = chunks;
  return p;
}

std::vector<double> trainOn(Trainer& trainer, std::int64_t first, std::int64_t last) {
  std::vector<double> losses;
  for (std::int64_t step = first; step <= last; ++step) losses.push_back(trainer.step(step).loss);
  return losses;
}

void save(Trainer& trainer, std::int64_t step) {
  CheckpointWriter writer(trainer);
  writer.begin(step);
  ASSERT_TRUE(writer.finish());
  const CheckpointWriter::Outcome outcome = writer.take();
  ASSERT_FALSE(outcome.failure.has_value()) << outcome.failure->problem().message;
  EXPECT_TRUE(writer.idle());
}

class Reshard : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (worldRank() == 0) writeTokenFile(directory_.file("d.tokens"), sampleTokens(1500, 61), 61);
    MPI_Barrier(MPI_COMM_WORLD);
    base_ = smallConfig(directory_.file("d.tokens"));
    base_.model.layers = 4, base_.model.tiedEmbeddings = GetParam();
  }
  Config configOf(const PlanConfig& plan, const std::string& directory,
                  DataType precision = DataType::float32) {
    Config config = base_;
    config.plan = plan, config.mesh = meshOf(plan), config.precision = precision;
    config.checkpoint = CheckpointConfig{directory_.file(directory), 1, 1, true};
    validatePlan(config);
    return config;
  }
  /// Calls `work` on the ranks of a plan with that rank's trainer; the others wait.
  void onRanks(const Config& config, const std::function<void(Trainer&)>& work) {
    std::vector<int> ranks(static_cast<std::size_t>(config.mesh.worldSize));
    std::iota(ranks.begin(), ranks.end(), 0);
    if (worldRank() < config.mesh.worldSize) {
      Trainer trainer(config, worldRank(), ranks);
      work(trainer);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  SharedDirectory directory_;
  Config base_;
};

TEST_P(Reshard, AnyPlanGoesOnFromAnyOther) {
  const PlanConfig all[] = {planOf(8, 1, 1, 1, 1, 1, 1, 1),
                            planOf(2, 1, 2, 1, 1, 1, 1, 2),
                            planOf(1, 1, 2, 1, 2, 4, 1, 1, true),
                            planOf(2, 1, 4, 1, 1, 1, 1, 1),
                            planOf(1, 2, 1, 2, 2, 1, 1, 1),
                            planOf(2, 1, 1, 4, 4, 1, 1, 1),
                            planOf(1, 4, 1, 1, 1, 1, 1, 1),
                            planOf(2, 1, 2, 2, 2, 1, 2, 2),
                            planOf(1, 2, 2, 1, 1, 2, 1, 1),
                            planOf(1, 2, 2, 2, 2, 2, 1, 1),
                            planOf(1, 2, 1, 1, 1, 1, 1, 1, false, 2),
                            planOf(2, 1, 4, 2, 2, 2, 2, 2),
                            planOf(1, 1, 8, 1, 1, 2, 1, 2)};
  std::vector<PlanConfig> plans;
  for (const PlanConfig& plan : all) {
    if (plan.worldSize() <= worldSize()) plans.push_back(plan);
  }
  double worst = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const PlanConfig &a = plans[i], &b = plans[(i + 1) % plans.size()];
    const std::string name = std::to_string(i), from = "from-" + name, to = "to-" + name;
    const bool rounded = i % 4 == 1;  // every fourth goes on in bf16: the same float32 bits, other arithmetic
    std::vector<double> expected, found;
    onRanks(configOf(a, from), [&](Trainer& trainer) {
      prepareCheckpointDirectory(trainer);
      trainer.initializeWeights();
      trainOn(trainer, 1, 2);
      save(trainer, 2);
      expected = trainOn(trainer, 3, 5);
    });
    if (worldRank() == 0) fs::copy(directory_.file(from), directory_.file(to), fs::copy_options::recursive);
    MPI_Barrier(MPI_COMM_WORLD);
    onRanks(configOf(b, to, rounded ? DataType::bfloat16 : DataType::float32), [&](Trainer& trainer) {
      EXPECT_EQ(loadLatestCheckpoint(trainer), 2);
      save(trainer, 2);  // takes the place of what was loaded
      found = trainOn(trainer, 3, 5);
    });
    if (worldRank() != 0) continue;
    const auto before = elementsOf(directory_.file(from) + "/step-2"),
               after = elementsOf(directory_.file(to) + "/step-2");
    EXPECT_EQ(before.size(), 3 * logicalTensors(base_.model).size());
    for (const auto& [tensor, bits] : before) {
      EXPECT_EQ(std::count(bits.begin(), bits.end(), 0x7fc00001u), 0)
          << tensor << " is not in the files in full";
      EXPECT_TRUE(after.at(tensor) == bits) << tensor << ": " << nameOf(a) << " to " << nameOf(b);
    }
    const Json saved = Json::parse(readFile(directory_.file(to) + "/step-2/manifest.json"))["content"];
    EXPECT_EQ(saved["plan"], Json::parse(planJson(b)));
    EXPECT_EQ(saved["dataPosition"], 16);
    for (std::size_t step = 0; step < 3; ++step) {
      const double difference = std::abs(found[step] - expected[step]) / expected[step];
      EXPECT_LE(difference, rounded ? 0.01 : 1e-6)
          << nameOf(a) << " to " << nameOf(b) << ", step " << step + 3;
      if (!rounded) worst = std::max(worst, difference);
    }
  }
  if (worldRank() == 0)
    std::printf("%zu changes of plan, largest relative difference of a loss %.2e\n", plans.size(), worst);
}

TEST_P(Reshard, AMissingFileOrAnotherModelIsRefusedOnEveryRank) {
  onRanks(configOf(planOf(2, 1, 2, 1, 1, 1, 1, 2), "ck"), [&](Trainer& trainer) {
    prepareCheckpointDirectory(trainer);
    trainer.initializeWeights();
    save(trainer, 1);
  });
  const auto refusal = [&](const Config& config, const std::string& part) {
    onRanks(config, [&](Trainer& trainer) {
      try {
        loadLatestCheckpoint(trainer);
        ADD_FAILURE() << "nothing was refused";
      } catch (const AgreedFailure& failure) {
        EXPECT_EQ(failure.problem().code, StatusCode::checkpointError);
        int reporters = failure.reporter() ? 1 : 0, told = 0;
        if (failure.reporter()) told = failure.problem().message.find(part) != std::string::npos ? 1 : 0;
        EXPECT_EQ(trainer.maximum(told), 1) << failure.problem().message;
        EXPECT_EQ(trainer.maximum(reporters), 1);
      }
    });
  };
  Config other = configOf(planOf(8, 1, 1, 1, 1, 1, 1, 1), "ck");
  other.model.ffnHiddenSize = 96;
  refusal(other, "model.ffnHiddenSize 80; the run has 96");
  if (worldRank() == 0) fs::remove(directory_.file("ck") + "/step-1/shard-00001.safetensors");
  MPI_Barrier(MPI_COMM_WORLD);
  refusal(configOf(planOf(1, 1, 4, 1, 1, 1, 1, 1), "ck"), "shard-00001.safetensors");
}

INSTANTIATE_TEST_SUITE_P(Head, Reshard, ::testing::Bool(),
                         [](const auto& head) { return head.param ? "Tied" : "Untied"; });

}  // namespace
}  // namespace internevo::trainer::testing
