// A measurement kit: configurations that `internevo profile prepare` made where the planner is. Its pieces are cases of the check; what
// they leave is assembled into a profile, and plans are compared with their prediction, elsewhere.
#pragma once

#include <string>
#include <vector>

#include "cuda/check/case.h"

namespace internevo::check {

constexpr const char* kKitFormat = "internevo-measurement-kit";
constexpr int kKitVersion = 1;

/// Reads a kit. False with *problem, which names the file, what is wrong and what to do.
bool readKit(const std::string& path, Json* kit, std::string* problem);
/// Its pieces as cases of the command "step".
std::vector<CheckCase> kitCases(const Json& kit);

}  // namespace internevo::check
