// Readers of the token formats: what they give, and what they say of files that are damaged.
#include <gtest/gtest.h>

#include <filesystem>

#include "data_writers.h"
#include "trainer/failure.h"
#include "trainer/token_file.h"

namespace internevo::trainer::testing {
namespace {

constexpr std::int64_t kVocabulary = 50;

class DataFormats : public ::testing::Test {
 protected:
  std::unique_ptr<TokenSource> open(const std::string& name, std::int64_t vocabulary = kVocabulary) {
    DataConfig config;
    config.path = directory_.file(name);
    return openTokenSource(config, vocabulary);
  }
  /// The message of opening and reading everything.
  std::string error(const std::string& name, std::int64_t vocabulary = kVocabulary) {
    try {
      const auto source = open(name, vocabulary);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->tokenCount()));
      source->read(0, source->tokenCount(), tokens.data());
      for (std::int64_t at = -1; at < source->tokenCount();) {
        const std::int64_t next = source->nextDocumentStart(at);
        EXPECT_GT(next, at);
        at = next;
      }
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.problem().code, StatusCode::dataError);
      EXPECT_NE(failure.problem().message.find(directory_.path()), std::string::npos)
          << failure.problem().message;
      EXPECT_FALSE(failure.problem().remedy.empty());
      return failure.problem().message;
    }
    return "";
  }
  void expectError(const std::string& name, std::initializer_list<std::string> parts) {
    const std::string message = error(name);
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
  void change(const std::string& name, std::size_t at, const std::string& bytes) {
    std::string whole = readFile(directory_.file(name));
    ASSERT_LE(at + bytes.size(), whole.size());
    writeFile(directory_.file(name), whole.replace(at, bytes.size(), bytes));
  }
  /// Every stretch of tokens and every document border, against the documents that were written.
  void expectGives(const TokenSource& source, const Documents& documents) {
    std::vector<std::int32_t> all;
    std::vector<std::int64_t> starts;
    for (const Document& document : documents) {
      if (!document.empty()) starts.push_back(static_cast<std::int64_t>(all.size()));
      all.insert(all.end(), document.begin(), document.end());
    }
    const auto count = static_cast<std::int64_t>(all.size());
    ASSERT_EQ(source.tokenCount(), count);
    starts.push_back(count);
    for (std::int64_t first = 0; first < count; ++first) {
      EXPECT_EQ(source.nextDocumentStart(first), *std::upper_bound(starts.begin(), starts.end() - 1, first));
      for (const std::int64_t length : {std::int64_t{1}, std::int64_t{17}, count - first}) {
        if (first + length > count) continue;
        std::vector<std::int32_t> read(static_cast<std::size_t>(length) + 1, -9);
        source.read(first, length, read.data());
        EXPECT_TRUE(std::equal(read.begin(), read.end() - 1, all.begin() + first));
        EXPECT_EQ(read.back(), -9);
      }
    }
  }
  /// No damage of one byte or by truncation may do more than be refused (or go unnoticed where it is harmless).
  void expectSurvivesDamage(const std::string& damaged, const std::string& opened) {
    const std::string whole = readFile(directory_.file(damaged));
    for (std::size_t length = 0; length < whole.size(); length += 3) {
      writeFile(directory_.file(damaged), whole.substr(0, length));
      EXPECT_NE(error(opened), "") << damaged << " cut to " << length;
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ flip);
        writeFile(directory_.file(damaged), bytes);
        error(opened);
      }
    }
    writeFile(directory_.file(damaged), whole);
    EXPECT_EQ(error(opened), "");
  }

  TemporaryDirectory directory_;
  const Documents documents_ = sampleDocuments({12, 1, 0, 5, 33, 6, 0, 0, 2, 90, 4}, kVocabulary);
};

// ---- own -----------------------------------------------------------------------------------------------------------

TEST_F(DataFormats, OwnGivesTokensAndDocuments) {
  const Documents documents = sampleDocuments({12, 1, 5, 33, 91}, kVocabulary);
  for (const std::uint32_t width : {2u, 4u}) {
    writeOwn(directory_.file("x.tokens"), documents, kVocabulary, width);
    const auto source = open("x.tokens");
    EXPECT_TRUE(source->knowsDocuments());
    expectGives(*source, documents);
  }
}

TEST_F(DataFormats, OwnNamesWhatIsWrongWithItsDocuments) {
  writeOwn(directory_.file("x.tokens"), sampleDocuments({12, 1, 5}, kVocabulary), kVocabulary,
           2);  // index at 104
  const std::string whole = readFile(directory_.file("x.tokens"));
  ASSERT_EQ(whole.size(), 128u);
  change("x.tokens", 120, "\x0c");  // 12, as the one before
  expectError("x.tokens", {"document 2 at token 12 (byte 120)", "from 13 to 17"});
  change("x.tokens", 104, "\x01");
  expectError("x.tokens", {"document 0 at token 1 (byte 104)"});
  writeFile(directory_.file("x.tokens"), whole.substr(0, 120));
  expectError("x.tokens", {"has 120 bytes", "128", "3 documents", "truncated"});
  writeFile(directory_.file("x.tokens"), whole);
  expectSurvivesDamage("x.tokens", "x.tokens");
}

// ---- Megatron-LM ---------------------------------------------------------------------------------------------------

TEST_F(DataFormats, MegatronGivesTokensAndDocumentsOfEveryType) {
  struct Type {
    std::uint8_t code;
    std::size_t width;
  };
  for (const Type type : {Type{1, 1}, Type{2, 1}, Type{3, 2}, Type{4, 4}, Type{5, 8}, Type{8, 2}}) {
    writeMegatron(directory_.file("m"), documents_, type.code, type.width, type.code % 2 == 0);
    for (const char* name : {"m.idx", "m.bin"}) expectGives(*open(name), documents_);
  }
  DataConfig stem;
  stem.path = directory_.file("m"), stem.format = DataConfig::Format::megatron;
  expectGives(*openTokenSource(stem, kVocabulary), documents_);
}

TEST_F(DataFormats, MegatronNamesFileByteFoundAndExpected) {
  const Documents documents = sampleDocuments(
      {5, 5, 3}, kVocabulary);  // three sequences: lengths at 34, pointers at 46, documents at 70
  const auto fresh = [&] { writeMegatron(directory_.file("m"), documents, 8, 2, false); };
  fresh(), change("m.idx", 0, "X");
  expectError("m.bin", {"m.idx", "MMIDIDX"});
  fresh(), change("m.idx", 9, "\x02");
  expectError("m.bin", {"m.idx", "version 2 at byte 9; 1"});
  for (const char* type : {"\x06", "\x07", "\x09", "\xff"}) {
    fresh(), change("m.idx", 17, type);
    expectError("m.bin", {"m.idx", "token type", "byte 17"});
  }
  fresh(), change("m.idx", 18, "\x04");
  expectError("m.bin", {"m.idx", "has 102 bytes", "4 sequences"});
  fresh(), change("m.idx", 18, std::string(8, '\x7f'));
  expectError("m.bin", {"m.idx", "truncated"});
  fresh(), change("m.idx", 34, "\xff\xff\xff\xff");
  expectError("m.bin", {"m.idx", "sequence 0 the length -1 (byte 34)"});
  fresh(), change("m.idx", 54, "\x09");
  expectError("m.bin", {"m.idx", "sequence 1 at byte 9", "(byte 54)", "10"});
  fresh(), change("m.idx", 78, "\x03"), change("m.idx", 86, "\x02");
  expectError("m.bin", {"m.idx", "document 2 with sequence 2 (byte 86)", "from 3 to 3"});
  fresh(), writeFile(directory_.file("m.bin"), readFile(directory_.file("m.bin")) + "xx");
  expectError("m.idx", {"m.bin", "has 28 bytes", "26", "too long"});
  fresh(), change("m.bin", 8, "\x32");
  expectError("m.idx", {"m.bin", "token 50 at byte 8", "model.vocabularySize is 50"});
  writeMegatron(directory_.file("m"), {{1, 2, -3}}, 4, 4, false);
  expectError("m.idx", {"m.bin", "token -3 at byte 8"});
  std::filesystem::remove(directory_.file("m.bin"));
  expectError("m.idx", {"m.bin", "cannot be read"});
}

TEST_F(DataFormats, MegatronSurvivesDamage) {
  writeMegatron(directory_.file("m"), sampleDocuments({7, 2, 11}, kVocabulary), 4, 4, false);
  expectSurvivesDamage("m.idx", "m.idx");
}

// ---- InternEvo -----------------------------------------------------------------------------------------------------

TEST_F(DataFormats, InternevoGivesTokensAndDocumentsOfEveryLayout) {
  for (const MetaLayout layout :
       {MetaLayout::int32, MetaLayout::int64, MetaLayout::columnMajor, MetaLayout::threeColumns}) {
    writeInternevo(directory_.file("i.bin"), documents_, layout);
    expectGives(*open("i.bin"), documents_);
  }
  Documents many = sampleDocuments(std::vector<std::size_t>(300, 2), kVocabulary);
  many[129].clear(), many[128].clear();
  writeInternevo(directory_.file("i.bin"), many);
  expectGives(*open("i.bin"), many);
}

TEST_F(DataFormats, InternevoNamesFileByteFoundAndExpected) {
  const auto fresh = [&] { writeInternevo(directory_.file("i.bin"), {{1, 22, 333}, {4, 5}}); };
  fresh();
  const std::string line = readFile(directory_.file("i.bin"));
  const std::string meta = readFile(directory_.file("i.bin.meta"));
  expectError("i.bin", {"i.bin", "token 333 at byte " + std::to_string(line.find("333"))});
  const auto cells = meta.size() - 16;
  fresh(), change("i.bin.meta", cells + 8, "\x05");
  expectError("i.bin",
              {"i.bin.meta", "says 5 for document 1 (byte " + std::to_string(cells + 8) + ")", "no line"});
  fresh(), change("i.bin.meta", cells + 8, std::string("\xff\xff\xff\xff"));
  expectError("i.bin", {"i.bin.meta", "says -1 for document 1", "a byte from 1"});
  fresh(), change("i.bin.meta", cells + 4, "\x02");
  expectError("i.bin", {"i.bin", "document at byte 0 has 3 tokens", "says 2"});
  fresh(), change("i.bin.meta", cells + 12, "\x03");
  expectError("i.bin", {});
  fresh(), writeFile(directory_.file("i.bin.meta"), meta.substr(0, meta.size() - 1));
  expectError("i.bin", {"i.bin.meta", "its header says", "truncated"});
  fresh(), change("i.bin.meta", meta.find("<i4"), "<f4");
  expectError("i.bin", {"i.bin.meta", "int32 or int64"});
  fresh(), change("i.bin.meta", 0, "X");
  expectError("i.bin", {"i.bin.meta", "NumPy"});
  std::filesystem::remove(directory_.file("i.bin.meta"));
  expectError("i.bin", {"i.bin", "neither an .idx nor a .bin.meta"});
}

TEST_F(DataFormats, InternevoNamesDamagedLines) {
  const auto error = [&](const std::string& written, const std::string& instead) {
    writeInternevo(directory_.file("i.bin"), {{1, 2, 3}});
    std::string line = readFile(directory_.file("i.bin"));
    writeFile(directory_.file("i.bin"), line.replace(line.find(written), written.size(), instead));
    return this->error("i.bin");
  };
  EXPECT_NE(error("tokens", "tokenz").find("there is no \"tokens\""), std::string::npos);
  EXPECT_NE(error("[1, 2, 3]", "12345").find("not an array"), std::string::npos);
  EXPECT_NE(error("[1, 2, 3]", "[1, 2, 3").find("damaged"), std::string::npos);
  EXPECT_NE(error("2", "2.5").find("token 2.5 at byte 15"), std::string::npos);
  const std::string negative = error("2", "-2");
  EXPECT_NE(negative.find("token -2 at byte 15, the 2. of document 0; tokens without loss (negative numbers) "
                          "are not supported"),
            std::string::npos)
      << negative;
  EXPECT_NE(error("2", "[2]").find("token [ at byte 15"), std::string::npos);
  EXPECT_NE(error("2", "99999999999999999999").find("token"), std::string::npos);
  EXPECT_NE(error("2", "18446744073709551615").find("token 18446744073709551615 at byte 15"),
            std::string::npos);
}

TEST_F(DataFormats, InternevoSurvivesDamage) {
  writeInternevo(directory_.file("i.bin"), {{1, 22, 33}, {}, {4, 5}});
  expectSurvivesDamage("i.bin.meta", "i.bin");
  const std::string lines = readFile(directory_.file("i.bin"));
  for (std::size_t at = 0; at < lines.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = lines;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      writeFile(directory_.file("i.bin"), bytes);
      error("i.bin");
    }
  }
}

// ---- what tells content apart --------------------------------------------------------------------------------------

TEST_F(DataFormats, ADigestTellsContentOfTheSameLengthApartInEveryFormat) {
  const auto digest = [&](const std::string& name) { return digestOf(open(name)->files()); };
  const auto writeAll = [&](const Documents& written) {
    writeOwn(directory_.file("o"), written, kVocabulary, 2);
    writeMegatron(directory_.file("m"), written, 4, 4, false);
    writeInternevo(directory_.file("i.bin"), written);
  };
  const Documents documents{{10, 11, 12, 13}, {14}, {15, 16}};
  Documents other = documents;
  other[0][1] = 17;
  for (const std::string name : {"o", "m.idx", "i.bin"}) {
    writeAll(documents);
    const std::string first = digest(name);
    EXPECT_EQ(first.substr(0, 5), "xxh3:");
    writeAll(documents);
    EXPECT_EQ(digest(name), first);
    writeAll(other);
    EXPECT_NE(digest(name), first) << name;
  }
}

/// 1,024 blocks of a larger file are looked at, the first and the last among them.
TEST_F(DataFormats, ADigestOfALargeFileLooksAtBlocksEvenlyOverIt) {
  constexpr std::size_t kBlock = 4096, kBlocks = 3000;
  const std::string path = directory_.file("large");
  std::string bytes(kBlock * (kBlocks - 1) + 5, 'a');
  const auto digest = [&] {
    writeFile(path, bytes);
    MappedFile file;
    file.open(path, 1);
    return digestOf({&file});
  };
  const std::string first = digest();
  std::size_t seen = 0;
  for (const std::size_t block : {0, 1, 2, 3, 4, 5, 1500, 1501, 1502, 1503, 1504, 2996, 2997, 2998, 2999}) {
    bytes[block * kBlock] = 'b';
    const bool differs = digest() != first;
    bytes[block * kBlock] = 'a';
    seen += differs;
    if (block == 0 || block == kBlocks - 1) EXPECT_TRUE(differs) << block;
  }
  EXPECT_GE(seen, 4u);
  EXPECT_LE(seen, 8u);
  bytes += 'a';
  EXPECT_NE(digest(), first);
}

TEST_F(DataFormats, AnAmbiguousFileAsksForItsFormat) {
  writeMegatron(directory_.file("m"), documents_, 4, 4, false);
  writeFile(directory_.file("m.bin.meta"), "");
  expectError("m.bin", {"both", ".idx", ".meta"});
  DataConfig config;
  config.path = directory_.file("m.bin"), config.format = DataConfig::Format::megatron;
  expectGives(*openTokenSource(config, kVocabulary), documents_);
}

}  // namespace
}  // namespace internevo::trainer::testing
