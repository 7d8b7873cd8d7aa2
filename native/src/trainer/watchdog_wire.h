// Messages and sockets of the watchdog. Ranks of one run are the same program on the same kind of machine, so structures
// travel as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "internevo/activity.h"

namespace internevo::trainer::watchdog {

constexpr int kTokenBytes = 16;

struct Hello {
  char token[kTokenBytes];  ///< random, of this run: a stranger that finds the port is turned away
  std::int32_t rank;
  std::int32_t zero;
};

struct Beat {
  std::int32_t goodbye;
  std::int32_t lane;  ///< ActivityLane of `operation`; −1 in none
  std::int32_t unit, microBatch;
  std::int64_t step, finished, sinceNanoseconds, longestNanoseconds;
  char operation[48];
};

/// The operation that began last, of all lanes.
Beat beatOf(const Activity& activity);
/// "step 12, in all-gather of unit 3, micro-batch 1, for 0.8 s"
std::string describe(const Beat& beat);

/// A listening socket on the loopback or on all interfaces, its port chosen by the system. −1 on failure.
int listenOn(bool loopbackOnly, std::uint16_t* port);
/// IPv4 addresses of this host at which others may reach it.
std::vector<std::string> addressesOfHost(bool loopbackOnly);
/// A connected socket, or −1 after `seconds`.
int connectTo(const std::string& address, std::uint16_t port, double seconds);
void setNonBlocking(int socket);
/// Whether all bytes were taken at once; messages are far below a socket's buffer.
bool sendAll(int socket, const void* data, std::size_t bytes);
std::string randomToken();

}  // namespace internevo::trainer::watchdog
