// Documents inside sequences: starts, targets, real tokens, positions; and the members of `data` in a configuration.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data_writers.h"
#include "trainer/failure.h"
#include "trainer/token_file.h"

namespace internevo::trainer::testing {
namespace {

constexpr std::int64_t kVocabulary = 50, kLength = 24, kEnd = 49;

/// Documents that end with token 49, which is nowhere else; some begin exactly where a sequence does.
Documents documentsWithEnds() {
  Documents documents = sampleDocuments({5, 1, 17, 23, 70, 30, 1, 1, 9}, kVocabulary - 1);
  for (Document& document : documents) document.push_back(kEnd);
  return documents;
}

class Packing : public ::testing::TestWithParam<int> {
 protected:
  DataConfig config() {
    DataConfig c;
    c.packing = DataConfig::Packing::documents;
    switch (GetParam()) {
      case 0: c.path = directory_.file("x.tokens"), writeOwn(c.path, documents_, kVocabulary, 2); break;
      case 1:
        c.path = directory_.file("x.bin"), writeMegatron(directory_.file("x"), documents_, 4, 4, false);
        break;
      case 2: c.path = directory_.file("x.bin"), writeInternevo(c.path, documents_); break;
      default: {
        c.path = directory_.file("x.tokens"), c.endOfDocumentToken = kEnd;
        std::vector<std::uint32_t> stream;
        for (const Document& document : documents_)
          stream.insert(stream.end(), document.begin(), document.end());
        writeTokenFile(c.path, stream, kVocabulary);
      }
    }
    return c;
  }
  const Documents documents_ = documentsWithEnds();
  TemporaryDirectory directory_;
};

TEST_P(Packing, StartsTargetsAndRealTokensAreThoseOfTheStream) {
  TokenFile file;
  file.open(config(), kVocabulary, kLength);
  std::vector<std::int32_t> tokens, documentOf;  // of the whole stream
  for (std::size_t d = 0; d < documents_.size(); ++d) {
    tokens.insert(tokens.end(), documents_[d].begin(), documents_[d].end());
    documentOf.insert(documentOf.end(), documents_[d].size(), static_cast<std::int32_t>(d));
  }
  ASSERT_EQ(file.sequenceCount(), (static_cast<std::int64_t>(tokens.size()) - 1) / kLength);
  for (std::int64_t sequence = 0; sequence < file.sequenceCount(); ++sequence) {
    const std::int64_t first = sequence * kLength;
    std::vector<std::int32_t> read(kLength), targets(kLength),
        starts(static_cast<std::size_t>(file.maxDocuments() + 1));
    file.read(sequence, 0, kLength, read.data(), targets.data());
    std::vector<std::int32_t> expectedStarts{0}, firstKeys, positions;
    std::int64_t real = 0;
    for (std::int64_t i = 0; i < kLength; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      if (i > 0 && documentOf[at] != documentOf[at - 1])
        expectedStarts.push_back(static_cast<std::int32_t>(i));
      firstKeys.push_back(expectedStarts.back());
      positions.push_back(static_cast<std::int32_t>(i) - expectedStarts.back());
      const bool inside = documentOf[at] == documentOf[at + 1];
      EXPECT_EQ(read[static_cast<std::size_t>(i)], tokens[at]);
      EXPECT_EQ(targets[static_cast<std::size_t>(i)], inside ? tokens[at + 1] : -1);
      real += inside ? 1 : 0;
    }
    expectedStarts.push_back(kLength);
    const std::int64_t count = file.documents(sequence, starts.data());
    starts.resize(static_cast<std::size_t>(count + 1));
    EXPECT_EQ(starts, expectedStarts);
    EXPECT_EQ(file.realTokens(sequence), real);
    // A rank's part is that part of the whole.
    for (const std::int64_t offset : {0, 6, 18}) {
      std::vector<std::int32_t> part(6), partTargets(6), partKeys(6), partPositions(6);
      file.read(sequence, offset, 6, part.data(), partTargets.data());
      expandDocuments(starts.data(), count, offset, 6, partKeys.data(), partPositions.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), read.begin() + offset));
      EXPECT_TRUE(std::equal(partTargets.begin(), partTargets.end(), targets.begin() + offset));
      EXPECT_TRUE(std::equal(partKeys.begin(), partKeys.end(), firstKeys.begin() + offset));
      EXPECT_TRUE(std::equal(partPositions.begin(), partPositions.end(), positions.begin() + offset));
    }
  }
}

TEST_P(Packing, WithoutItASequenceIsOneDocument) {
  DataConfig c = config();
  c.packing = DataConfig::Packing::none;
  TokenFile file;
  file.open(c, kVocabulary, kLength);
  std::int32_t tokens[kLength], targets[kLength], starts[2];
  EXPECT_EQ(file.maxDocuments(), 1);
  for (std::int64_t sequence = 0; sequence < file.sequenceCount(); ++sequence) {
    file.read(sequence, 0, kLength, tokens, targets);
    EXPECT_EQ(file.documents(sequence, starts), 1);
    EXPECT_EQ(starts[0], 0);
    EXPECT_EQ(starts[1], kLength);
    EXPECT_EQ(file.realTokens(sequence), kLength);
    EXPECT_EQ(std::count(targets, targets + kLength, -1), 0);
  }
}

TEST_P(Packing, TooManyDocumentsNameTheSequenceAndTheRemedy) {
  DataConfig c = config();
  c.maxDocumentsPerSequence = 2;
  TokenFile file;
  file.open(c, kVocabulary, kLength);
  std::int32_t starts[3];
  try {
    file.documents(0, starts);  // documents of 6, 2 and 16 and more tokens
    FAIL() << "nothing was refused";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.problem().code, StatusCode::dataError);
    EXPECT_EQ(failure.problem().field, "data.maxDocumentsPerSequence");
    EXPECT_NE(failure.problem().message.find("3 documents in sequence 0"), std::string::npos)
        << failure.problem().message;
    EXPECT_NE(failure.problem().remedy.find("3 or more"), std::string::npos) << failure.problem().remedy;
  }
}

std::string nameOfSource(const ::testing::TestParamInfo<int>& source) {
  constexpr const char* kNames[] = {"Own", "Megatron", "Internevo", "EndOfDocumentToken"};
  return kNames[source.param];
}
INSTANTIATE_TEST_SUITE_P(Sources, Packing, ::testing::Values(0, 1, 2, 3), nameOfSource);

std::string refusal(const DataConfig& c) {
  try {
    TokenFile().open(c, kVocabulary, kLength);
  } catch (const Failure& failure) {
    return failure.problem().message + " / " + failure.problem().remedy;
  }
  return "";
}

TEST(PackingSources, ThatDoNotKnowDocumentsAreRefused) {
  TemporaryDirectory directory;
  DataConfig c;
  c.path = directory.file("x.tokens"), c.packing = DataConfig::Packing::documents;
  writeTokenFile(c.path, sampleTokens(100, kVocabulary), kVocabulary);
  EXPECT_NE(refusal(c).find("endOfDocumentToken"), std::string::npos) << refusal(c);
  c.endOfDocumentToken = kVocabulary;
  EXPECT_NE(refusal(c).find("data.endOfDocumentToken 50 is outside"), std::string::npos) << refusal(c);
  c.endOfDocumentToken = 3;
  EXPECT_EQ(refusal(c), "");
}

TEST(DataMembers, AreReadAndCheckedByName) {
  const nlohmann::json document = nlohmann::json::parse(documentOf(smallConfig("x.tokens")));
  const auto parse = [&](const nlohmann::json& data) {
    nlohmann::json changed = document;
    changed["data"] = data;
    return parseConfig(changed.dump());
  };
  Config c = parse({{"path", "a.tokens"}});
  EXPECT_EQ(c.data.format, DataConfig::Format::byExtension);
  EXPECT_EQ(c.data.packing, DataConfig::Packing::none);
  EXPECT_EQ(c.data.endOfDocumentToken, std::nullopt);
  c = parse({{"path", "a"},
             {"format", "internevo"},
             {"packing", "documents"},
             {"endOfDocumentToken", 2},
             {"maxDocumentsPerSequence", 7}});
  EXPECT_EQ(c.data.format, DataConfig::Format::internevo);
  EXPECT_EQ(c.data.packing, DataConfig::Packing::documents);
  EXPECT_EQ(c.data.endOfDocumentToken, 2);
  EXPECT_EQ(c.data.maxDocumentsPerSequence, 7);
  const auto field = [&](const nlohmann::json& data) {
    try {
      parse(data);
    } catch (const Failure& failure) {
      return failure.problem().field;
    }
    return std::string();
  };
  EXPECT_EQ(field({{"path", "a"}, {"format", "parquet"}}), "data.format");
  EXPECT_EQ(field({{"path", "a"}, {"packing", true}}), "data.packing");
  EXPECT_EQ(field({{"path", "a"}, {"endOfDocumentToken", c.model.vocabularySize}}),
            "data.endOfDocumentToken");
  EXPECT_EQ(field({{"path", "a"}, {"maxDocumentsPerSequence", 0}}), "data.maxDocumentsPerSequence");
  EXPECT_EQ(field({{"path", "a"}, {"paking", "none"}}), "data.paking");
}

}  // namespace
}  // namespace internevo::trainer::testing
