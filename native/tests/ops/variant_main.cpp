// Tests of one compilation of the CPU backend, by its own headers; status 77 where the processor cannot run it. Compiled for any.
#include <gtest/gtest.h>

#include <cstdio>

#include "backend/cpu/processor.h"

int main(int argc, char** argv) {
  const internevo::cpu::Variant* variant = nullptr;
  const internevo::Status status = internevo::cpu::chooseVariant(INTERNEVO_TESTED_VARIANT, &variant);
  if (!status.ok()) {
    std::printf("this processor cannot run %s\n", INTERNEVO_TESTED_VARIANT);
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
