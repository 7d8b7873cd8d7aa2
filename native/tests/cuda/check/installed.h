// Where programs and libraries are: an absolute path that the build knew, or one beside this program, as a bundle has them.
#pragma once

#include <string>

#include "../../installed.h"
#include "../../trainer/process.h"

namespace internevo::check {

inline std::string installed(const char* path) { return trainer::testing::located(path); }

}  // namespace internevo::check
