#include "backend/cuda/attention_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace internevo::cuda {

namespace {

constexpr std::int64_t kPieces = 64, kPieceRows = 16;
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr int kFewestRounds = 2, kMostRounds = 10;
constexpr double kEnoughSeconds = 0.5;

std::int64_t spanBytes(const TrialTensor& t) {
  return ((t.rows - 1) * t.stride + t.width) * bytesPerElement(t.view.type);
}

/// What is looked at of an output, row by row without what lies between them; `pieces` as numbers of elements.
struct Sample {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> pieces;
};

Status read(MemorySpace& memory, const TrialTensor& t, Sample* sample) {
  const std::int64_t element = bytesPerElement(t.view.type), rowBytes = t.width * element;
  const std::int64_t rows = std::clamp<std::int64_t>(kPieceBytes / (t.stride * element), 1, kPieceRows);
  const std::int64_t all = (t.rows + rows - 1) / rows, pieces = std::min(all, kPieces);
  sample->bytes.clear(), sample->pieces.clear();
  std::vector<std::byte> piece;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t first = (pieces == 1 ? 0 : i * (all - 1) / (pieces - 1)) * rows,
                       count = std::min(rows, t.rows - first);
    piece.resize(static_cast<std::size_t>(((count - 1) * t.stride + t.width) * element));
    INTERNEVO_RETURN_IF_ERROR(memory.download(piece.data(), t.view.offset(first * t.stride).data,
                                              static_cast<std::int64_t>(piece.size())));
    for (std::int64_t row = 0; row < count; ++row) {
      const auto begin = piece.begin() + row * t.stride * element;
      sample->bytes.insert(sample->bytes.end(), begin, begin + rowBytes);
    }
    sample->pieces.push_back(count * t.width);
  }
  return Status::success();
}

Status readAll(MemorySpace& memory, const TrialPass& pass, std::vector<Sample>* samples) {
  samples->resize(pass.outputs.size());
  for (std::size_t i = 0; i < pass.outputs.size(); ++i) {
    INTERNEVO_RETURN_IF_ERROR(read(memory, pass.outputs[i], &(*samples)[i]));
  }
  return Status::success();
}

double valueAt(const Sample& s, DataType type, std::int64_t index) {
  if (type == DataType::float32) {
    float value = 0;
    std::memcpy(&value, s.bytes.data() + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, s.bytes.data() + index * 2, 2);
  return floatFromBfloat16(bits);
}

/// Largest relative difference of a piece; NaN when one has none of its own.
double difference(const Sample& library, const Sample& own, DataType type) {
  double worst = 0;
  std::int64_t at = 0;
  for (const std::int64_t elements : own.pieces) {
    double apart = 0, size = 0;
    for (std::int64_t end = at + elements; at < end; ++at) {
      const double a = valueAt(library, type, at), b = valueAt(own, type, at);
      apart += (a - b) * (a - b), size += b * b;
    }
    const double relative = apart == 0 ? 0 : std::sqrt(apart / size);
    if (!(relative <= worst)) worst = relative;
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

std::string compare(const TrialPass& pass, const std::vector<Sample>& library,
                    const std::vector<Sample>& own) {
  for (std::size_t i = 0; i < pass.outputs.size(); ++i) {
    const TrialTensor& t = pass.outputs[i];
    const double limit = t.view.type == DataType::float32 ? kFloat32Difference : kBfloat16Difference;
    const double found = difference(library[i], own[i], t.view.type);
    if (found <= limit) continue;
    return std::string(t.name) + " differs from ours by " + std::to_string(found) + ", at most " +
           std::to_string(limit) + " would be rounding";
  }
  return "";
}

/// Empty when it may be taken.
Status check(MemorySpace& memory, const TrialPass& pass, std::string* refusal) {
  std::vector<Sample> own, library, again;
  INTERNEVO_RETURN_IF_ERROR(pass.own());
  INTERNEVO_RETURN_IF_ERROR(readAll(memory, pass, &own));
  // What is not written must not look like ours.
  for (const TrialTensor& t : pass.outputs) {
    const std::int64_t element = bytesPerElement(t.view.type);
    INTERNEVO_RETURN_IF_ERROR(memory.zeroRows(t.view.data, t.stride * element, t.width * element, t.rows));
  }
  const Status computed = pass.library();
  if (!computed.ok()) return *refusal = computed.message(), Status::success();
  INTERNEVO_RETURN_IF_ERROR(readAll(memory, pass, &library));
  *refusal = compare(pass, library, own);
  if (!refusal->empty() || !pass.sameBits) return Status::success();
  INTERNEVO_RETURN_IF_ERROR(pass.library());
  INTERNEVO_RETURN_IF_ERROR(readAll(memory, pass, &again));
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i].bytes != library[i].bytes)
      *refusal = std::string(pass.outputs[i].name) + " has other bits when it is computed again";
  }
  return Status::success();
}

Status time(Stopwatch& stopwatch, const std::function<Status()>& call, double* best) {
  double seconds = 0;
  INTERNEVO_RETURN_IF_ERROR(stopwatch.start());
  INTERNEVO_RETURN_IF_ERROR(call());
  INTERNEVO_RETURN_IF_ERROR(stopwatch.stop(&seconds));
  *best = std::min(*best, seconds);
  return Status::success();
}

}  // namespace

Status fillForTrial(MemorySpace& memory, const TrialTensor& t, std::uint32_t seed) {
  constexpr std::int64_t kElements = 4194301;  // a prime: where values repeat, rows and heads do not
  std::mt19937 random(seed);
  const std::int64_t elements = spanBytes(t) / 2, own = std::min(kElements, elements);
  std::vector<std::uint16_t> values(static_cast<std::size_t>(own));
  for (auto& value : values) value = bfloat16FromFloat(static_cast<float>(random()) * 0x1p-30f - 2.f);
  INTERNEVO_RETURN_IF_ERROR(memory.upload(t.view.data, values.data(), 2 * own));
  for (std::int64_t done = own; done < elements; done *= 2) {
    INTERNEVO_RETURN_IF_ERROR(
        memory.copy(t.view.offset(done).data, t.view.data, 2 * std::min(done, elements - done)));
  }
  return Status::success();
}

Status runTrial(MemorySpace& memory, Stopwatch& stopwatch, const TrialPass& pass, TrialResult* result) {
  *result = {};
  INTERNEVO_RETURN_IF_ERROR(check(memory, pass, &result->refusal));
  if (!result->refusal.empty()) return pass.own();
  double own = 1e30, library = 1e30, spent = 0;
  for (int round = 0; round < kMostRounds && (round < kFewestRounds || spent < kEnoughSeconds); ++round) {
    INTERNEVO_RETURN_IF_ERROR(time(stopwatch, pass.own, &own));
    INTERNEVO_RETURN_IF_ERROR(time(stopwatch, pass.library, &library));
    spent += own + library;
  }
  result->ownSeconds = own, result->librarySeconds = library;
  return Status::success();
}

}  // namespace internevo::cuda
