#include "backend/cuda/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace internevo::cuda {

void* openShared(const char* variable, const char* name, std::string* opened) {
  if (const char* const given = std::getenv(variable); given != nullptr && *given != '\0') {
    *opened = given;
    return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  }
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&openShared), &own) != 0 && own.dli_fname != nullptr) {
    const std::string folder(own.dli_fname);
    *opened = folder.substr(0, folder.rfind('/') + 1) + name;
    if (void* const beside = dlopen(opened->c_str(), RTLD_NOW | RTLD_LOCAL); beside != nullptr) return beside;
  }
  *opened = name;
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace internevo::cuda
