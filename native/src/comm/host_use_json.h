// How both programs tell of HostUse.
#pragma once

#include <nlohmann/json.hpp>

#include "internevo/host_use.h"

namespace internevo {

/// An array with one object a machine: the value of `hosts` in the event of the same name.
template <typename Json>
Json hostUseJson(const std::vector<HostUse>& hosts) {
  Json list = Json::array();
  for (const HostUse& host : hosts) {
    Json one{{"host", host.host},
             {"ranks", host.ranks},
             {"cores", host.cores},
             {"seconds", host.seconds},
             {"ranksSeconds", host.ranksSeconds},
             {"othersSeconds", host.othersSeconds},
             {"stolenSeconds", host.stolenSeconds},
             {"loadBefore", host.loadBefore},
             {"loadAfter", host.loadAfter},
             {"runnableBefore", host.runnableBefore},
             {"runnableAfter", host.runnableAfter},
             {"involuntarySwitches", host.involuntarySwitches}};
    if (host.clockBeforeHertz > 0) one["clockBeforeHertz"] = host.clockBeforeHertz;
    if (host.clockAfterHertz > 0) one["clockAfterHertz"] = host.clockAfterHertz;
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace internevo
