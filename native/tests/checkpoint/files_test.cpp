// Files of checkpoints: safetensors, the manifest, reading slices, damage, a full disk, putting directories in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>

#include "checkpoint/hugging_face.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint_tool/commands.h"
#include "trainer/failure.h"
#include "trainer/support.h"

namespace internevo::trainer::testing {
namespace {

namespace fs = std::filesystem;

std::string messageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().code, StatusCode::checkpointError);
    return failure.problem().message;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(FileWriter, AFullDeviceIsToldWithThePathAndTheBytesThatAreNeeded) {
  FileWriter file("/dev/full", 4096);  // the device is always full
  const std::string bytes(4096, 'x');
  const std::string message = messageOf([&] { file.write(bytes.data(), 4096); });
  EXPECT_NE(message.find("/dev/full cannot be written: No space left on device; it needs 4096 bytes"),
            std::string::npos)
      << message;
}

TEST(FileWriter, WhatStaysFreeOfADiskIsNotTaken) {
  TemporaryDirectory directory;
  const std::string path = directory.file("large");
  // More than any disk has: all of it stays free.
  const DiskMargin all{1, std::int64_t{1} << 62};
  const std::string message = messageOf([&] { FileWriter(path, 4096, all); });
  EXPECT_NE(message.find(path + " is not written: it needs 4096 bytes, and the file system has "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" stay free for everything else"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(path));
  EXPECT_NO_THROW(FileWriter(path, 4096, DiskMargin{1, 1}));
}

TEST(FileWriter, ADirectoryThatIsNotThereIsNamed) {
  EXPECT_NE(messageOf([] { FileWriter("/proc/none/file", 1); }).find("/proc/none/file cannot be created"),
            std::string::npos);
}

TEST(Publish, ReplacesWhatIsThereAndLeavesNothingBehind) {
  TemporaryDirectory directory;
  const std::string path = directory.file("step-3");
  for (const std::string content : {"first", "second"}) {
    fs::create_directories(path + ".tmp");
    writeFile(path + ".tmp/a", content);
    publishDirectory(path + ".tmp", path);
    EXPECT_EQ(readFile(path + "/a"), content);
    EXPECT_FALSE(fs::exists(path + ".tmp"));
  }
}

TEST(Directories, OlderOnesGoButNotWhatIsNewerThanTheStep) {
  TemporaryDirectory directory;
  for (const char* name : {"step-1", "step-2", "step-10", "step-30", "step-2.tmp", "step-7.removed.tmp",
                           "step-x.tmp", "other.tmp"}) {
    fs::create_directories(directory.file(name));
  }
  EXPECT_EQ(stepsIn(directory.path()), (std::vector<std::int64_t>{1, 2, 10, 30}));
  removeOlder(directory.path(), 10, 2);
  EXPECT_EQ(stepsIn(directory.path()), (std::vector<std::int64_t>{2, 10, 30}));
  removeOlder(directory.path(), 10, 1);
  EXPECT_EQ(stepsIn(directory.path()), (std::vector<std::int64_t>{10, 30}));
  removeLeftovers(directory.path());
  EXPECT_FALSE(fs::exists(directory.file("step-2.tmp")));
  EXPECT_FALSE(fs::exists(directory.file("step-7.removed.tmp")));
  EXPECT_TRUE(fs::exists(directory.file("step-x.tmp")));
  EXPECT_TRUE(fs::exists(directory.file("other.tmp")));
}

/// A checkpoint of one tensor [6, 8] in two column halves, the left one cut inside a row.
class Checkpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(path_);
    values_.resize(48);
    std::iota(values_.begin(), values_.end(), 100.f);
    manifest_.step = 3, manifest_.dataPosition = 12, manifest_.identity = {{"seed", 5}},
    manifest_.precision = "fp32";
    manifest_.holds = {kWeight, kFirstMoment};
    manifest_.tensors = {{"w", {6, 8}}};
    write("a.safetensors", {{0, 0, 6, 4}, 0, 10});
    write("b.safetensors", {{0, 0, 6, 4}, 10, 24});
    write("c.safetensors", {{0, 4, 6, 4}, 0, 24});
    writeFile(path_ + "/manifest.json", manifestText(manifest_));
  }
  void write(const std::string& name, const Slice& slice) {
    std::vector<float> part(static_cast<std::size_t>(slice.elements())), moment(part.size(), 0.5f);
    for (const internevo::trainer::Run& run : sharedRuns(wholeOf({6, 8}), slice))
      std::copy_n(&values_[run.source], run.elements, &part[run.target]);
    SavedFile file{name, {}, {{"w", slice, {}}}};
    const auto shape = entryShape({6, 8}, slice);
    file.summary = writeSafetensors(
        path_ + "/" + name, {{"w.weight", shape, part.data()}, {"w.firstMoment", shape, moment.data()}}, {});
    for (const auto& tensor : readSafetensorsHeader(FileReader(path_ + "/" + name)).tensors) {
      file.pieces[0].offsets.push_back(tensor.offset);
    }
    manifest_.files.push_back(file);
  }
  OrderedJson verify() { return verifyCommand(path_); }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.file("step-3");
  std::vector<float> values_;
  Manifest manifest_;
};

TEST_F(Checkpoint, GivesBackAnySlice) {
  const Manifest manifest = readManifest(path_);
  EXPECT_EQ(manifest.step, 3);
  EXPECT_EQ(manifest.parameters(), 48);
  EXPECT_EQ(coverageProblem(manifest), "");
  const TensorSource source = sourceOf(manifest, path_, kWeight);
  for (const Slice& slice : {wholeOf({6, 8}), Slice{{1, 2, 4, 5}, 3, 17}, Slice{{5, 7, 1, 1}, 0, 1}}) {
    std::vector<float> found(static_cast<std::size_t>(slice.elements()), 0);
    readSlices(source, {{"w", slice, found.data()}});
    for (const internevo::trainer::Run& run : sharedRuns(wholeOf({6, 8}), slice)) {
      for (std::int64_t i = 0; i < run.elements; ++i) {
        EXPECT_EQ(found[static_cast<std::size_t>(run.target + i)],
                  values_[static_cast<std::size_t>(run.source + i)]);
      }
    }
  }
  std::vector<float> moments(48, 0);
  readSlices(sourceOf(manifest, path_, kFirstMoment), {{"w", wholeOf({6, 8}), moments.data()}});
  EXPECT_EQ(moments, std::vector<float>(48, 0.5f));
  EXPECT_NE(messageOf([&] { sourceOf(manifest, path_, kSecondMoment); }).find("secondMoment"),
            std::string::npos);
}

/// Bytes that this process has read from files so far.
std::int64_t bytesRead() {
  std::string text = readFile("/proc/self/io");
  return std::stoll(text.substr(text.find("rchar: ") + 7));
}

TEST(Slices, OnlyTheirOwnBytesAreRead) {
  TemporaryDirectory directory;
  const TensorShape shape{4096, 1024};  // 16 MiB
  const std::vector<float> values(static_cast<std::size_t>(shape.elements()), 1.f);
  const std::string path = directory.file("big.safetensors");
  writeSafetensors(path, {{"w", {shape.rows, shape.columns}, values.data()}}, {});
  TensorSource source;
  source.paths = {path};
  source.tensors["w"] = {
      shape,
      {{0, wholeOf(shape), readSafetensorsHeader(FileReader(path)).tensors[0].offset, ElementType::float32}}};
  Slice eighth = wholeOf(shape);
  eighth.begin = 3 * shape.elements() / 8, eighth.end = 4 * shape.elements() / 8;
  std::vector<float> found(static_cast<std::size_t>(eighth.elements()), 0.f);
  const std::int64_t before = bytesRead();
  readSlices(source, {{"w", eighth, found.data()}});
  EXPECT_LT(bytesRead() - before, eighth.elements() * 4 + (64 << 10));
  EXPECT_EQ(found.front() + found.back(), 2.f);
}

TEST_F(Checkpoint, EveryFlippedBitAndEveryTruncationIsFoundAndNamed) {
  EXPECT_TRUE(verify()["ok"]);
  for (const char* name : {"b.safetensors", "manifest.json"}) {
    const std::string path = path_ + "/" + name, whole = readFile(path);
    for (std::size_t bit = 0; bit < whole.size() * 8; bit += 37) {
      std::string bytes = whole;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      writeFile(path, bytes);
      const OrderedJson result = verify()["checkpoints"][0];
      EXPECT_FALSE(result["ok"].get<bool>()) << name << " bit " << bit;
      ASSERT_FALSE(result["problems"].empty());
      EXPECT_EQ(result["problems"][0]["file"], name);
    }
    for (std::size_t length = 0; length < whole.size(); length += 53) {
      writeFile(path, whole.substr(0, length));
      EXPECT_EQ(verify()["checkpoints"][0]["problems"][0]["file"], name) << length;
    }
    writeFile(path, whole);
  }
  EXPECT_TRUE(verify()["ok"]);
}

TEST_F(Checkpoint, AnIndexThatDoesNotFitIsFound) {
  const auto problem = [&](const std::function<void(Manifest*)>& change) {
    Manifest changed = manifest_;
    change(&changed);
    writeFile(path_ + "/manifest.json", manifestText(changed));
    const OrderedJson result = verify()["checkpoints"][0];
    EXPECT_FALSE(result["ok"].get<bool>());
    std::string messages;
    for (const auto& each : result["problems"])
      messages.append(each["message"].get<std::string>()).append("; ");
    return messages;
  };
  EXPECT_NE(problem([](Manifest* m) { m->files.pop_back(); }).find("24 of its 48 elements are in no file"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) {
              m->files[1].pieces[0].slice = {{0, 0, 6, 4}, 9, 23};
            }).find("overlap"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) {
              m->files[0].pieces[0].slice.end = 9;
            }).find("does not hold w.weight where the index says"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) {
              std::swap(m->files[0].pieces[0].offsets[0], m->files[0].pieces[0].offsets[1]);
            }).find("does not hold w.weight where the index says"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) { m->files[0].pieces[0].offsets[0] = 1 << 20; }).find("is damaged"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) { m->files[0].pieces[0].tensor = "x"; }).find("is damaged"),
            std::string::npos);
  EXPECT_NE(problem([](Manifest* m) { m->files[0].name = "../a"; }).find("elsewhere"), std::string::npos);
}

TEST_F(Checkpoint, AnotherVersionIsRefusedByName) {
  std::string text = readFile(path_ + "/manifest.json");
  auto document = nlohmann::json::parse(text);
  document["content"]["version"] = 1;
  document["checksum"] = hexOf(checksumOf(document["content"].dump()));
  writeFile(path_ + "/manifest.json", document.dump() + "\n");
  EXPECT_NE(messageOf([&] { readManifest(path_); }).find("version 1; version 2 is read"), std::string::npos);
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.file("x.safetensors");
  const auto written = [&](const std::string& header, std::size_t data) {
    const std::uint64_t length = header.size();
    writeFile(path,
              std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0'));
    return messageOf([&] { readSafetensorsHeader(FileReader(path)); });
  };
  EXPECT_NE(written("{", 0).find("not JSON"), std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8).find("as I64"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 8).find("soundly"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 8).find("soundly"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 8)
                .find("soundly"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8).find("does not begin"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8).find("end at byte"),
            std::string::npos);
  EXPECT_NE(written(R"({"a":{"dtype":"F32"}})", 8).find("soundly"), std::string::npos);
  writeFile(path, "abc");
  EXPECT_NE(messageOf([&] { readSafetensorsHeader(FileReader(path)); }).find("truncated"), std::string::npos);
}

/// A header of so many tensors of one element each, and its data.
std::string fileOfTensors(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"F16","shape":[1],"data_offsets":[)" + std::to_string(2 * i) + "," +
              std::to_string(2 * i + 2) + "]}";
  }
  header += "}";
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(static_cast<std::size_t>(2 * count), '\0');
}

/// An index that names so many tensors.
std::string indexOfTensors(int count) {
  std::string index = R"({"":"")";
  for (int i = 0; i < count; ++i) index += ",\"" + std::to_string(i) + R"(":"a.safetensors")";
  return index + "}";
}

/// How many times longer a file of 100,000 tensors takes than one of 25,000, in time of this process: 4 where
/// the time is in proportion, 16 where it grows with the square.
double growthOf(const std::function<std::string(int)>& content,
                const std::function<void(const std::string&)>& read) {
  TemporaryDirectory directory;
  const std::string path = directory.file("x");
  const auto ticks = [&](int count, int runs) {
    writeFile(path, content(count));
    std::clock_t least = 0;
    for (int run = 0; run < runs; ++run) {
      const std::clock_t begin = std::clock();
      read(path);
      const std::clock_t taken = std::clock() - begin;
      least = run == 0 ? taken : std::min(least, taken);
    }
    return static_cast<double>(std::max<std::clock_t>(least, 1));
  };
  const double few = ticks(25'000, 5);
  return ticks(100'000, 3) / few;
}

TEST(Safetensors, TheTimeOfAHeaderGrowsWithItsTensors) {
  EXPECT_LT(growthOf(fileOfTensors,
                     [](const std::string& path) {
                       const auto header = readSafetensorsHeader(FileReader(path));
                       EXPECT_EQ(header.tensors.back().name, std::to_string(header.tensors.size() - 1));
                     }),
            9);
  EXPECT_LT(
      growthOf(indexOfTensors, [](const std::string& path) { EXPECT_TRUE(readObject(path).is_object()); }),
      9);
}

TEST(Safetensors, TheTimeOfWritingAHeaderGrowsWithItsTensors) {
  EXPECT_LT(growthOf([](int count) { return std::to_string(count); },
                     [](const std::string& path) {
                       SafetensorsHeader header;
                       const int count = std::stoi(readFile(path));
                       for (int i = 0; i < count; ++i)
                         header.tensors.push_back({std::to_string(i), ElementType::float32, {1}, 0});
                       layoutSafetensors(&header);
                     }),
            9);
}

TEST(Safetensors, HalfPrecisionIsExact) {
  const std::uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x0400, 0x3555};
  const float expected[] = {1.f, -2.f, 65504.f, 0x1p-24f, -0.f, 0x1p-14f, 0.333251953125f};
  float found[7];
  convertToFloat(ElementType::float16, half, found, 7);
  EXPECT_EQ(std::memcmp(found, expected, sizeof expected), 0);
}

}  // namespace
}  // namespace internevo::trainer::testing
