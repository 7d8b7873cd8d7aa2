// What every library with the entry point of device_library.h does with its arguments.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "internevo/device_library.h"

namespace internevo::cuda {

/// Answers `open(request, &backend)` in the arguments of an entry point; nothing is thrown past it.
template <typename Open>
int answerOpen(DeviceOpenArguments* arguments, const Open& open) {
  Status status;
  try {
    std::unique_ptr<Backend> backend;
    if (arguments->interfaceVersion != kDeviceInterface) {
      status = {StatusCode::badConfig, "the program speaks version " +
                                           std::to_string(arguments->interfaceVersion) +
                                           " of the interface, the library " +
                                           std::to_string(kDeviceInterface) + "; build both together"};
    } else {
      status = open(arguments->request, &backend);
    }
    if (status.ok()) arguments->backend = backend.release();
  } catch (const std::exception& error) {
    status = {StatusCode::internal, error.what()};
  }
  if (status.ok() || arguments->messageBytes <= 0) return static_cast<int>(status.code());
  const std::size_t length =
      std::min(status.message().size(), static_cast<std::size_t>(arguments->messageBytes - 1));
  std::memcpy(arguments->message, status.message().data(), length);
  arguments->message[length] = '\0';
  return static_cast<int>(status.code());
}

}  // namespace internevo::cuda
