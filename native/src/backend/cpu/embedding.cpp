#include <algorithm>
#include <cstring>

#include "backend/cpu/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gradient_sums.h"
#include "backend/cpu/parallel.h"

namespace internevo::cpu {

namespace {

Status prepare(const char* call, const EmbeddingShape& s, ConstView tokens) {
  INTERNEVO_RETURN_IF_ERROR(
      requirePositive(call, {{"rows", s.rows}, {"width", s.width}, {"vocabulary", s.vocabulary}}));
  INTERNEVO_RETURN_IF_ERROR(requireType(call, DataType::int32, "int32", {{"tokens", tokens}}));
  const std::int64_t whole = s.wholeVocabulary == 0 ? s.vocabulary : s.wholeVocabulary;
  if (s.first < 0 || s.first + s.vocabulary > whole) {
    return badArgument(call, "first",
                       "is " + std::to_string(s.first) + "; the slice must be inside the vocabulary of " +
                           std::to_string(whole));
  }
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const std::int32_t token = tokens.as<std::int32_t>()[row];
    if (token < 0 || token >= whole) {
      return {StatusCode::dataError, std::string(call) + ": tokens[" + std::to_string(row) + "] is " +
                                         std::to_string(token) + "; the vocabulary has " +
                                         std::to_string(whole) + " entries"};
    }
  }
  return Status::success();
}

/// Whether rows [begin, end) have the token; as many at a time as the compiler compares at once.
bool occurs(const std::int32_t* tokens, std::int64_t begin, std::int64_t end, std::int32_t token) {
  constexpr std::int64_t kAtOnce = 256;
  for (std::int64_t first = begin; first < end; first += kAtOnce) {
    int found = 0;
    for (std::int64_t row = first; row < std::min(first + kAtOnce, end); ++row) found |= tokens[row] == token;
    if (found != 0) return true;
  }
  return false;
}

/// gTable bfloat16: every row of the table is rounded once, however many rows have its token. The first row that has a token adds
/// all of them; a thread has rows [begin, end) and what they are the first of.
template <typename T>
void addTokensOfRows(const EmbeddingShape& s, const std::int32_t* tokens, const T* gY, View gTable,
                     std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int32_t token = tokens[row];
    const std::int64_t entry = token - s.first;
    if (entry < 0 || entry >= s.vocabulary || occurs(tokens, 0, row, token)) continue;
    addToGradient(gTable.offset(entry * s.width), 0, s.width,
                  [&](std::int64_t first, std::int64_t columns, float* sums) {
                    for (std::int64_t other = row; other < s.rows; ++other) {
                      if (tokens[other] != token) continue;
                      const T* const source = gY + other * s.width + first;
                      forVectors(columns, [&](std::int64_t i, std::int64_t count) {
                        storeUpTo(sums + i, loadUpTo(sums + i, count) + loadUpTo(source + i, count), count);
                      });
                    }
                  });
  }
}

}  // namespace

Status CpuBackend::embeddingForward(const EmbeddingShape& s, ConstView tokens, ConstView table, View y) {
  constexpr const char* kCall = "embeddingForward";
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, s, tokens));
  INTERNEVO_RETURN_IF_ERROR(requireSameFloats(kCall, {{"table", table}, {"y", y}}));
  const std::int64_t bytes = s.width * bytesPerElement(table.type);
  parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t entry = tokens.as<std::int32_t>()[row] - s.first;
      void* const target = y.offset(row * s.width).data;
      if (entry >= 0 && entry < s.vocabulary) {
        std::memcpy(target, table.offset(entry * s.width).data, static_cast<std::size_t>(bytes));
      } else {
        std::memset(target, 0, static_cast<std::size_t>(bytes));
      }
    }
  });
  return Status::success();
}

Status CpuBackend::embeddingBackward(const EmbeddingShape& s, ConstView tokens, ConstView gY, View gTable) {
  constexpr const char* kCall = "embeddingBackward";
  INTERNEVO_RETURN_IF_ERROR(prepare(kCall, s, tokens));
  INTERNEVO_RETURN_IF_ERROR(requireFloats(kCall, {{"gY", gY}, {"gTable", gTable}}));
  withElementType(gY.type, [&](auto tag) {
    using T = decltype(tag);
    if (gTable.type == DataType::bfloat16) {
      return parallelRanges(threads_, s.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
        addTokensOfRows(s, tokens.as<std::int32_t>(), gY.as<T>(), gTable, begin, end);
      });
    }
    // Threads take columns: rows of one token are then added in order by one thread.
    parallelRanges(threads_, s.width, 64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const std::int64_t entry = tokens.as<std::int32_t>()[row] - s.first;
        if (entry < 0 || entry >= s.vocabulary) continue;
        const T* const source = gY.as<T>() + row * s.width + begin;
        float* const target = gTable.as<float>() + entry * s.width + begin;
        forVectors(end - begin, [&](std::int64_t i, std::int64_t count) {
          storeUpTo(target + i, loadUpTo(target + i, count) + loadUpTo(source + i, count), count);
        });
      }
    });
  });
  return Status::success();
}

}  // namespace internevo::cpu
