// The MPI session that the test program's main has started.
#pragma once

#include "internevo/collectives.h"

namespace internevo::test {

const MpiSession& session();

}  // namespace internevo::test
