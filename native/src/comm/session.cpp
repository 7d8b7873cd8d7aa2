#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "internevo/collectives.h"

namespace internevo {

Status MpiSession::start(int* argc, char*** argv) {
  if (started_) return {StatusCode::internal, "MPI was started already"};
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    return {StatusCode::communicationError, "MPI_Init_thread failed; start the program with mpirun"};
  }
  started_ = true;
  if (provided < MPI_THREAD_MULTIPLE) {
    return {StatusCode::communicationError, "this MPI library gives thread level " +
                                                std::to_string(provided) +
                                                "; a library built with MPI_THREAD_MULTIPLE is needed"};
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &worldSize_);

  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name own{};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<Name> names(static_cast<std::size_t>(worldSize_));
  if (MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME,
                    MPI_CHAR, MPI_COMM_WORLD) != MPI_SUCCESS) {
    return {StatusCode::communicationError,
            "the ranks cannot reach one another; check the network between the hosts"};
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const Name& name : names) hosts_.emplace_back(name.data());
  return Status::success();
}

int localRank() {
  static const int place = [] {
    int started = 0, rank = 0;
    MPI_Initialized(&started);
    if (started == 0) return 0;
    MPI_Comm host = MPI_COMM_NULL;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
      return 0;
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
  }();
  return place;
}

void MpiSession::abandon(int exitCode) {
  // MPI_Abort asks the launcher, which may be occupied with the rank that is lost: an exit without MPI_Finalize tells it too.
  std::thread([exitCode] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::_Exit(exitCode);
  }).detach();
  if (started_) MPI_Abort(MPI_COMM_WORLD, exitCode);
  std::_Exit(exitCode);
}

MpiSession::~MpiSession() {
  if (started_) MPI_Finalize();
}

}  // namespace internevo
