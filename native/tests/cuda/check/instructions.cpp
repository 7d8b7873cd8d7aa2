// Kernels of one instruction each, on the GPU and on its model; and the faults that a driver has to survive.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "cuda/check/case.h"
#include "cuda/check/children.h"
#include "cuda/check/installed.h"
#include "cuda/kernel_cases.h"

namespace internevo::check {

namespace {

constexpr std::int64_t kOutputBytes = 1 << 20;

cuda::RunKernelCase open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw CannotRun(Outcome::failed, path + " cannot be opened: " + dlerror());
  const auto run = reinterpret_cast<cuda::RunKernelCase>(dlsym(library, cuda::kRunKernelCaseName));
  if (run == nullptr) throw CannotRun(Outcome::failed, path + " has no " + cuda::kRunKernelCaseName);
  return run;
}

/// A tensor of a case's output.
struct Tensor {
  std::string name, type;
  std::size_t columns = 0, elements = 0;
  std::size_t bytes() const { return elements * (type == "bf16" ? 2 : 4); }
};
struct CaseOutput {
  std::vector<unsigned char> bytes;
  std::vector<Tensor> tensors;
};

std::vector<Tensor> tensorsOf(const char* layout) {
  std::vector<Tensor> tensors;
  std::istringstream lines(layout);
  for (std::string line; std::getline(lines, line);) {
    // A name may have several words; the last three are the rest.
    std::string words[3];
    for (int i = 2; i >= 0; --i) {
      const std::size_t at = std::min(line.rfind(' '), line.size());
      words[i] = line.substr(std::min(at + 1, line.size())), line.resize(at);
    }
    Tensor tensor{line, words[0], std::strtoull(words[1].c_str(), nullptr, 10),
                  std::strtoull(words[2].c_str(), nullptr, 10)};
    if (tensor.columns == 0) throw CannotRun(Outcome::failed, "a kernel case names a tensor without columns");
    tensors.push_back(tensor);
  }
  return tensors;
}

CaseOutput outputOf(cuda::RunKernelCase run, const std::string& name, const char* where, unsigned seed = 1) {
  CaseOutput output;
  output.bytes.resize(kOutputBytes);
  cuda::KernelCase call;
  call.name = name.c_str(), call.output = output.bytes.data(), call.outputBytes = kOutputBytes;
  call.seed = seed;
  if (const int code = run(&call); code != 0)
    throw CannotRun(code == 2 ? Outcome::absent : Outcome::failed, std::string(where) + ": " + call.message);
  output.bytes.resize(static_cast<std::size_t>(call.writtenBytes));
  output.tensors = tensorsOf(call.layout);
  return output;
}

/// An element as a number, with its bits where two numbers could look alike.
std::string elementText(const Tensor& tensor, const unsigned char* data) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, data, tensor.type == "bf16" ? 2 : 4);
  char text[64] = "";
  if (tensor.type == "f32" || tensor.type == "bf16") {
    const std::uint32_t wide = tensor.type == "bf16" ? bits << 16 : bits;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    std::snprintf(text, sizeof text, "%.9g (%0*x)", static_cast<double>(value), tensor.type == "bf16" ? 4 : 8,
                  bits);
  } else {
    std::snprintf(text, sizeof text, "%08x", bits);
  }
  return text;
}

/// Compares two outputs bit by bit: the first difference by its tensor, row and column, and how far the differences reach.
Outcome compareBits(CaseRun& run, const CaseOutput& device, const CaseOutput& model) {
  run.result = {{"bytes", model.bytes.size()}, {"tensors", Json::array()}};
  if (device.bytes.size() != model.bytes.size()) {
    run.message = "the device wrote " + std::to_string(device.bytes.size()) + " bytes, the model " +
                  std::to_string(model.bytes.size());
    return Outcome::failed;
  }
  std::size_t at = 0, different = 0;
  for (const Tensor& tensor : model.tensors) {
    const std::size_t size = tensor.bytes() / std::max<std::size_t>(tensor.elements, 1);
    Json row{{"tensor", tensor.name}, {"elements", tensor.elements}, {"different", 0}};
    std::size_t count = 0, rows[2] = {0, 0}, columns[2] = {0, 0};
    for (std::size_t i = 0; i < tensor.elements; ++i) {
      const unsigned char* const ours = device.bytes.data() + at + i * size;
      const unsigned char* const theirs = model.bytes.data() + at + i * size;
      if (std::memcmp(ours, theirs, size) == 0) continue;
      const std::size_t y = i / tensor.columns, x = i % tensor.columns;
      if (different++ == 0) {
        run.result["firstDifference"] = {{"tensor", tensor.name},
                                         {"row", y},
                                         {"column", x},
                                         {"device", elementText(tensor, ours)},
                                         {"model", elementText(tensor, theirs)}};
        run.message = tensor.name + "[" + std::to_string(y) + ", " + std::to_string(x) + "] is " +
                      elementText(tensor, ours) + " on the device and " + elementText(tensor, theirs) +
                      " on the model";
      }
      if (count++ == 0) rows[0] = rows[1] = y, columns[0] = columns[1] = x;
      rows[0] = std::min(rows[0], y), rows[1] = std::max(rows[1], y);
      columns[0] = std::min(columns[0], x), columns[1] = std::max(columns[1], x);
    }
    row["different"] = count;
    if (count > 0) row["rows"] = {rows[0], rows[1]}, row["columns"] = {columns[0], columns[1]};
    run.result["tensors"].push_back(row);
    at += tensor.bytes();
  }
  if (at != model.bytes.size()) return run.message = "the case does not say what it wrote", Outcome::failed;
  if (different == 0) return Outcome::passed;
  run.message += "; " + std::to_string(different) + " elements differ";
  return Outcome::failed;
}

std::string deviceCases(const CaseRun& run) {
  return installed(run.small() ? built::kKernelCasesModel : built::kKernelCases);
}

}  // namespace

Outcome checkInstruction(CaseRun& run, const std::string& name) {
  const CaseOutput device = outputOf(open(deviceCases(run)), name, "the device");
  return compareBits(run, device, outputOf(open(installed(built::kKernelCasesModel)), name, "the model"));
}

Outcome runFault(CaseRun& run, const std::string& name) {
  if (name == "killed") kill(getpid(), SIGKILL);
  if (name == "thrown") throw std::runtime_error("thrown by a case");
  if (name == "partial") {
    run.result["figure"] = 42, run.noteNow();
    std::printf("said before it hangs\n"), std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (name == "children") {
    // A grandchild of another session that outlives its parent, as a rank under mpirun might.
    if (fork() == 0) {
      setsid();
      if (fork() == 0) {
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      }
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return Outcome::passed;
  }
  if (name == "memory") {
    Status status = Status::success();
    for (std::int64_t bytes = std::int64_t{1} << 46; status.ok();) {
      void* data = nullptr;
      status = run.device().memory().allocate(bytes, &data);
    }
    return run.message = status.message(), Outcome::failed;
  }
  // Other numbers on the model, so that all bits differ as after a wrong instruction.
  if (name == "bits") {
    const CaseOutput device = outputOf(open(deviceCases(run)), "wgmma-inside-atom", "the device");
    return compareBits(
        run, device,
        outputOf(open(installed(built::kKernelCasesModel)), "wgmma-inside-atom", "the model", 2));
  }
  outputOf(open(deviceCases(run)), name, "the device");
  return Outcome::passed;
}

}  // namespace internevo::check
