// internevo-trainer --config FILE [--dry-run [--without-data] [--memory-map [--stage N]]], one process a rank.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "internevo/collectives.h"
#include "protocol/protocol.h"
#include "trainer/agreement.h"
#include "trainer/config.h"
#include "trainer/events.h"
#include "trainer/failure.h"
#include "trainer/run.h"

namespace {

using namespace internevo;
using namespace internevo::trainer;

std::atomic<bool> terminateAsked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void askToTerminate(int) { terminateAsked.store(true); }

void installSignals() {
  struct sigaction action {};
  action.sa_handler = askToTerminate;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);  // mpirun passes this one on and leaves the ranks alone
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // write() tells that a file may not grow
}

struct Options {
  std::string configPath;
  bool dryRun = false;
  DryRunOptions dry;
};

constexpr const char* kUsage =
    "use internevo-trainer --config FILE [--dry-run [--without-data] [--memory-map [--stage N]]]";

std::int64_t stageOf(const std::string& text) {
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos) {
    throw Failure(Problem{StatusCode::badConfig, "--stage " + text + " is no stage", "--stage",
                          nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                          "give the number of a stage, from 0"});
  }
  return std::stoll(text);
}

Options parseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--dry-run") {
      options.dryRun = true;
    } else if (argument == "--memory-map") {
      options.dry.memoryMap = true;
    } else if (argument == "--without-data") {
      options.dry.withData = false;
    } else if (argument == "--stage" && i + 1 < argc) {
      options.dry.stage = stageOf(argv[++i]);
    } else if (argument == "--config" && i + 1 < argc) {
      options.configPath = argv[++i];
    } else {
      throw Failure(Problem{StatusCode::badConfig, "unknown argument " + argument, argument, "", kUsage});
    }
  }
  if (options.configPath.empty()) {
    throw Failure(Problem{StatusCode::badConfig, "--config is missing", "--config", "", kUsage});
  }
  if (options.dry.memoryMap && !options.dryRun) {
    throw Failure(Problem{StatusCode::badConfig, "--memory-map is given without --dry-run", "--memory-map",
                          "", "add --dry-run"});
  }
  if (!options.dry.withData && !options.dryRun) {
    throw Failure(Problem{StatusCode::badConfig, "--without-data is given without --dry-run",
                          "--without-data", "", "add --dry-run"});
  }
  if (options.dry.stage && !options.dry.memoryMap) {
    throw Failure(Problem{StatusCode::badConfig, "--stage is given without --memory-map", "--stage",
                          std::to_string(*options.dry.stage), "add --memory-map"});
  }
  return options;
}

/// Distinct names of the hosts, in the order of their first rank.
std::vector<std::string> hostNames(int worldSize) {
  using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  Name own{};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<Name> all(static_cast<std::size_t>(worldSize));
  if (MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, all.data(), MPI_MAX_PROCESSOR_NAME,
                    MPI_CHAR, MPI_COMM_WORLD) != MPI_SUCCESS) {
    throw Failure(StatusCode::communicationError, "the ranks cannot reach one another");
  }
  std::vector<std::string> hosts;
  for (const Name& name : all) {
    bool known = false;
    for (const std::string& host : hosts) known = known || host == name.data();
    if (!known) hosts.emplace_back(name.data());
  }
  return hosts;
}

Config configurationOf(const Options& options) {
  const Config config = loadConfig(options.configPath);
  validatePlan(config);
  return config;
}

/// Every rank reads the same configuration, so an error in it is known to all; rank 0 reports.
int runRanks(MpiSession& session, const Options& options) {
  try {
    const Config config = configurationOf(options);
    if (session.worldSize() != config.mesh.worldSize) {
      throw Failure(Problem{StatusCode::badConfig,
                            "mesh.worldSize " + std::to_string(config.mesh.worldSize) + " is not the " +
                                std::to_string(session.worldSize()) + " processes that were started",
                            "mesh.worldSize", std::to_string(config.mesh.worldSize),
                            "start mpirun -np " + std::to_string(config.mesh.worldSize)});
    }
    const std::vector<std::string> hosts = hostNames(session.worldSize());
    const auto abandon = [&session](int exitCode) { session.abandon(exitCode); };
    return run(config, session.rank(), hosts, terminateAsked, abandon) == RunEnd::terminated
               ? protocol::exitTerminated
               : 0;
  } catch (const AgreedFailure& failure) {
    if (failure.reporter()) emitError(failure.problem(), session.rank());
    return exitCodeOf(failure.problem().code);
  } catch (const Failure& failure) {
    const StatusCode code = failure.problem().code;
    if (code == StatusCode::badConfig || code == StatusCode::planUnsupported) {
      if (session.rank() == 0) emitError(failure.problem(), 0);
      return exitCodeOf(code);
    }
    // Only this rank may know: the others cannot go on, nor can they be told.
    emitError(failure.problem(), session.rank());
    session.abandon(exitCodeOf(code));
  } catch (const std::exception& error) {
    emitError({StatusCode::internal, error.what(), "", "", ""}, session.rank());
    session.abandon(exitCodeOf(StatusCode::internal));
  }
}

int guarded(int argc, char** argv) {
  try {
    const Options options = parseOptions(argc, argv);
    if (options.dryRun) {
      dryRun(configurationOf(options), options.dry);
      return 0;
    }
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;  // the launcher died before the line above
    MpiSession session;
    if (const Status status = session.start(&argc, &argv); !status.ok()) {
      emitError({status.code(), status.message(), "", "", ""}, session.rank());
      return exitCodeOf(status.code());
    }
    installSignals();
    return runRanks(session, options);
  } catch (const Failure& failure) {
    emitError(failure.problem(), 0);
    return exitCodeOf(failure.problem().code);
  } catch (const std::exception& error) {
    emitError({StatusCode::internal, error.what(), "", "", ""}, 0);
    return exitCodeOf(StatusCode::internal);
  }
}

}  // namespace

int main(int argc, char** argv) { return guarded(argc, argv); }
