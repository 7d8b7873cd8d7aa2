// Libraries of NVIDIA's that are opened when a run needs them.
#pragma once

#include <string>

namespace internevo::cuda {

/// Opens the file that the environment's `variable` names, else `name` beside this library, else where the build or the system has it.
/// `opened` is what was tried last; null: dlerror() has the reason. Never to be closed: threads of such libraries outlive every user.
void* openShared(const char* variable, const char* name, std::string* opened);

}  // namespace internevo::cuda
