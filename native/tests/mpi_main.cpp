// Runs GoogleTest on every rank; a failure on any rank fails the program.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

#include "mpi_session.h"

namespace {
internevo::MpiSession* started = nullptr;
}

const internevo::MpiSession& internevo::test::session() { return *started; }

int main(int argc, char** argv) {
  internevo::MpiSession session;
  if (!session.start(&argc, &argv).ok()) return 2;
  started = &session;
  testing::InitGoogleTest(&argc, argv);
  if (session.rank() != 0) {
    // One rank reports successes; failures are printed by everyone.
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    class FailuresOnly : public testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed()) {
          std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.summary());
        }
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed;
}
