// mpirun -np N internevo-probe --config FILE
#include <signal.h>
#include <sys/prctl.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "probe/run.h"

namespace {

using internevo::StatusCode;
using internevo::probe::Json;
using internevo::probe::Problem;

std::string isoTime() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03ldZ", now.tv_nsec / 1000000);
  return text;
}

void emit(Json event) {
  event["at"] = isoTime();
  std::cout << event.dump() + "\n" << std::flush;
}

int exitCode(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return 0;
    case StatusCode::badConfig:
    case StatusCode::planUnsupported: return 2;
    case StatusCode::outOfMemory: return 3;
    case StatusCode::dataError: return 4;
    case StatusCode::checkpointError: return 5;
    case StatusCode::communicationError: return 6;
    case StatusCode::internal:
    case StatusCode::notFinite: return 70;
  }
  return 70;
}

int fail(int rank, const Problem& problem) {
  Json event{{"event", "error"},
             {"code", internevo::statusCodeName(problem.code)},
             {"message", problem.message},
             {"rank", rank}};
  if (!problem.field.empty()) event["field"] = problem.field;
  if (!problem.value.is_null()) event["value"] = problem.value;
  if (!problem.remedy.empty()) event["remedy"] = problem.remedy;
  emit(event);
  return exitCode(problem.code);
}

/// Rank 0 reads; the other hosts need not have the file.
bool readConfig(const internevo::MpiSession& session, const char* path, std::string* text) {
  std::int64_t length = -1;
  if (session.rank() == 0) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      text->assign(std::istreambuf_iterator<char>(file), {});
      length = static_cast<std::int64_t>(text->size());
    }
  }
  MPI_Bcast(&length, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  constexpr std::int64_t kLargest = 64 << 20;
  if (length < 0 || length > kLargest) return false;
  text->resize(static_cast<std::size_t>(length));
  return MPI_Bcast(text->data(), static_cast<int>(length), MPI_CHAR, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its launcher
  internevo::MpiSession session;
  const internevo::Status started = session.start(&argc, &argv);
  if (!started.ok()) return fail(session.rank(), {started.code(), started.message(), "", nullptr, ""});
  if (argc != 3 || std::string(argv[1]) != "--config") {
    const Problem usage{StatusCode::badConfig, "usage: internevo-probe --config FILE", "--config", nullptr,
                        "give the path of the configuration"};
    return session.rank() == 0 ? fail(0, usage) : exitCode(usage.code);
  }
  std::string text;
  internevo::probe::Config config;
  Problem problem;
  if (!readConfig(session, argv[2], &text)) {
    problem = {StatusCode::badConfig, std::string("cannot read ") + argv[2], "--config", argv[2],
               "give a readable file of at most 64 MiB"};
  } else {
    internevo::probe::parseConfig(text, session.worldSize(), &config, &problem);
  }
  if (problem.code != StatusCode::ok) return session.rank() == 0 ? fail(0, problem) : exitCode(problem.code);

  const auto [status, everyRankKnows] = internevo::probe::runProbe(config, session, emit);
  if (status.ok()) return 0;
  if (everyRankKnows && status.message().empty()) return exitCode(status.code());
  const int code = fail(session.rank(), {status.code(), status.message(), "", nullptr, ""});
  if (!everyRankKnows) session.abandon(code);  // the others may be waiting inside a collective
  return code;
}
