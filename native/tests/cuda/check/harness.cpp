#include "cuda/check/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace internevo::check {

namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr double kFloat32Limit = 2e-5, kBfloat16Rounding = 1.0 / 256;

DataType typeOf(Kind kind, DataType storage) {
  switch (kind) {
    case Kind::storage: return storage;
    case Kind::float32: return DataType::float32;
    case Kind::float64: return DataType::float64;
    case Kind::int32: return DataType::int32;
  }
  return storage;
}

double roundedTo(DataType type, double value) {
  if (type == DataType::float32) return static_cast<double>(static_cast<float>(value));
  if (type == DataType::bfloat16)
    return static_cast<double>(floatFromBfloat16(bfloat16FromFloat(static_cast<float>(value))));
  return value;
}

std::vector<std::byte> encoded(const std::vector<double>& values, DataType type) {
  const auto each = static_cast<std::size_t>(bytesPerElement(type));
  std::vector<std::byte> bytes(values.size() * each);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::byte* const target = bytes.data() + i * each;
    const auto put = [&](auto value) { std::memcpy(target, &value, sizeof value); };
    if (type == DataType::float32) put(static_cast<float>(values[i]));
    if (type == DataType::bfloat16) put(bfloat16FromFloat(static_cast<float>(values[i])));
    if (type == DataType::float64) put(values[i]);
    if (type == DataType::int32) put(static_cast<std::int32_t>(values[i]));
  }
  return bytes;
}

std::vector<double> decoded(const std::vector<std::byte>& bytes, DataType type) {
  const auto each = static_cast<std::size_t>(bytesPerElement(type));
  std::vector<double> values(bytes.size() / each);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto get = [&](auto value) {
      std::memcpy(&value, bytes.data() + i * each, sizeof value);
      return value;
    };
    if (type == DataType::float32) values[i] = static_cast<double>(get(float{}));
    if (type == DataType::bfloat16) values[i] = static_cast<double>(floatFromBfloat16(get(std::uint16_t{})));
    if (type == DataType::float64) values[i] = get(double{});
    if (type == DataType::int32) values[i] = get(std::int32_t{});
  }
  return values;
}

/// Memory of a backend with what a tensor holds, and bytes behind it that nobody may write.
class Placed {
 public:
  Placed(MemorySpace& memory, std::vector<std::byte> bytes)
      : memory_(memory), bytes_(static_cast<std::int64_t>(bytes.size())) {
    bytes.resize(bytes.size() + kGuardBytes, std::byte{0xa5});
    status_ = memory_.allocate(bytes_ + kGuardBytes, &data_);
    if (status_.ok()) status_ = memory_.upload(data_, bytes.data(), bytes_ + kGuardBytes);
  }
  ~Placed() {
    if (data_ != nullptr) memory_.release(data_, bytes_ + kGuardBytes);
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  const Status& status() const { return status_; }
  void* data() const { return data_; }
  Status read(std::vector<std::byte>* bytes) {
    bytes->resize(static_cast<std::size_t>(bytes_ + kGuardBytes));
    INTERNEVO_RETURN_IF_ERROR(memory_.download(bytes->data(), data_, bytes_ + kGuardBytes));
    const auto untouched = [](std::byte b) { return b == std::byte{0xa5}; };
    if (!std::all_of(bytes->end() - kGuardBytes, bytes->end(), untouched)) {
      return {StatusCode::internal, "bytes behind it were written"};
    }
    bytes->resize(static_cast<std::size_t>(bytes_));
    return Status::success();
  }

 private:
  MemorySpace& memory_;
  const std::int64_t bytes_;
  void* data_ = nullptr;
  Status status_;
};

/// The outputs, and last the sum.
Status execute(const Case& what, DataType inputs, DataType storage, Backend& backend,
               std::vector<std::vector<double>>* outputs) {
  std::vector<std::unique_ptr<Placed>> places;
  std::vector<View> views;
  for (const Tensor& t : what.tensors) {
    std::vector<double> values = t.values();
    if (t.kind == Kind::storage) {
      for (double& value : values) value = roundedTo(inputs, value);
    }
    const DataType type = typeOf(t.kind, storage);
    places.push_back(std::make_unique<Placed>(backend.memory(), encoded(values, type)));
    INTERNEVO_RETURN_IF_ERROR(places.back()->status());
    views.push_back({places.back()->data(), type});
  }
  const std::int64_t scratchBytes = what.workspaceBytes ? what.workspaceBytes(backend) : 0;
  Placed scratch(backend.memory(), std::vector<std::byte>(static_cast<std::size_t>(scratchBytes)));
  INTERNEVO_RETURN_IF_ERROR(scratch.status());
  ExactSum sum;
  INTERNEVO_RETURN_IF_ERROR(what.run(backend, views, {scratch.data(), scratchBytes}, &sum));
  INTERNEVO_RETURN_IF_ERROR(backend.settle());
  outputs->clear();
  std::vector<std::byte> bytes;
  INTERNEVO_RETURN_IF_ERROR(scratch.read(&bytes));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Status status = places[i]->read(&bytes);
    if (!status.ok()) return {status.code(), what.tensors[i].name + ": " + status.message()};
    if (what.tensors[i].output) outputs->push_back(decoded(bytes, views[i].type));
  }
  outputs->push_back({sum.value()});
  return Status::success();
}

/// ‖a − b‖ / ‖b‖; infinities that are equal do not count.
double relativeError(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] && std::isinf(a[i])) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / (size == 0 ? 1e-300 : size));
}

}  // namespace

Case made(Case what) {
  for (Tensor& each : what.tensors) each.values = [values = each.values()] { return values; };
  return what;
}

Verdict compare(const Case& what, DataType precision, Backend& cpu, Backend& device) {
  const bool half = precision == DataType::bfloat16;
  Verdict v{what.name, half ? "bf16" : "fp32", false, 0, 0, ""};
  std::vector<std::vector<double>> reference, same, got;
  const auto failed = [&](const char* where, const Status& status) {
    if (status.ok()) return false;
    v.message = std::string(where) + ": " + status.message();
    return true;
  };
  if (failed("cpu", execute(what, precision, DataType::float32, cpu, &reference))) return v;
  if (half && failed("cpu", execute(what, precision, precision, cpu, &same))) return v;
  if (failed("device", execute(what, precision, precision, device, &got))) return v;
  std::vector<std::string> names;
  for (const Tensor& t : what.tensors) {
    if (t.output) names.push_back(t.name);
  }
  names.push_back("sum");
  v.passed = true;
  double worst = -1;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = relativeError(got[i], reference[i]);
    const double limit = what.exact ? 0
                         : half     ? 2 * relativeError(same[i], reference[i]) + kBfloat16Rounding
                                    : kFloat32Limit;
    if (!(error <= limit)) v.passed = false;  // also for NaN
    const double share = error == 0 ? 0 : error / limit;
    if (share <= worst) continue;
    worst = share, v.error = error, v.limit = limit, v.message = "worst: " + names[i];
    if (std::isnan(error)) break;
  }
  return v;
}

}  // namespace internevo::check
