// The main of the tests that one compilation of the CPU backend runs; status 77 where the processor cannot run it.
// The compilation is INTERNEVO_TESTED_VARIANT, or else the one that the environment names. Compiled for any processor.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backend/cpu/processor.h"

namespace {

#if defined(INTERNEVO_TESTED_VARIANT)
const char* testedVariant() { return INTERNEVO_TESTED_VARIANT; }
#else
const char* testedVariant() {
  const char* const named = std::getenv("INTERNEVO_CPU");
  return named == nullptr ? "" : named;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const internevo::cpu::Variant* variant = nullptr;
  const internevo::Status status = internevo::cpu::chooseVariant(testedVariant(), &variant);
  if (!status.ok()) {
    std::printf("this processor cannot run %s\n", testedVariant());
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
