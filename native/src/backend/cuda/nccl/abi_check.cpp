// Compiled where nccl.h is at hand: what api.h says of NCCL is what NCCL says.
#include <nccl.h>

#include <type_traits>

#include "backend/cuda/nccl/api.h"

namespace internevo::cuda::nccl {

static_assert(ncclSuccess == int{kSuccess} && ncclInProgress == int{kInProgress});
static_assert(ncclInt8 == int{kInt8} && ncclInt64 == int{kInt64} && ncclFloat32 == int{kFloat32} &&
              ncclFloat64 == int{kFloat64} && ncclBfloat16 == int{kBfloat16});
static_assert(ncclSum == int{kSum} && ncclMax == int{kMaximum});
static_assert(NCCL_SPLIT_NOCOLOR == kNoColor && NCCL_CONFIG_UNDEF_INT == INT_MIN);
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && sizeof(ncclResult_t) == sizeof(int) &&
              sizeof(ncclDataType_t) == sizeof(int));

#define INTERNEVO_SAME_PLACE(own, theirs) \
  static_assert(offsetof(Config, own) == offsetof(ncclConfig_t, theirs))
INTERNEVO_SAME_PLACE(magic, magic);
INTERNEVO_SAME_PLACE(version, version);
INTERNEVO_SAME_PLACE(blocking, blocking);
INTERNEVO_SAME_PLACE(cgaClusterSize, cgaClusterSize);
INTERNEVO_SAME_PLACE(minCtas, minCTAs);
INTERNEVO_SAME_PLACE(maxCtas, maxCTAs);
INTERNEVO_SAME_PLACE(netName, netName);
INTERNEVO_SAME_PLACE(splitShare, splitShare);
#if NCCL_VERSION_CODE >= 22700
static_assert(sizeof(ncclConfig_t) >= sizeof(Config));
INTERNEVO_SAME_PLACE(trafficClass, trafficClass);
INTERNEVO_SAME_PLACE(commName, commName);
INTERNEVO_SAME_PLACE(collnetEnable, collnetEnable);
INTERNEVO_SAME_PLACE(ctaPolicy, CTAPolicy);
INTERNEVO_SAME_PLACE(shrinkShare, shrinkShare);
INTERNEVO_SAME_PLACE(nvlsCtas, nvlsCTAs);
static_assert(NCCL_CTA_POLICY_DEFAULT == int{kPolicyDefault} &&
              NCCL_CTA_POLICY_EFFICIENCY == int{kPolicyEfficiency} &&
              NCCL_CTA_POLICY_ZERO == int{kPolicyZero} && NCCL_WIN_COLL_SYMMETRIC == kWindowSymmetric);
#endif
#undef INTERNEVO_SAME_PLACE

// Nothing of the library is named but in types: nothing is linked.
template <typename Function, typename... Arguments>
constexpr bool kTakes = std::is_invocable_r_v<ncclResult_t, Function, Arguments...>;
using Count = std::size_t;
using Stream = cudaStream_t;
static_assert(kTakes<decltype(&ncclCommInitRankConfig), ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*>);
static_assert(kTakes<decltype(&ncclCommSplit), ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*>);
static_assert(kTakes<decltype(&ncclCommGetAsyncError), ncclComm_t, ncclResult_t*>);
static_assert(kTakes<decltype(&ncclSend), const void*, Count, ncclDataType_t, int, ncclComm_t, Stream>);
static_assert(kTakes<decltype(&ncclRecv), void*, Count, ncclDataType_t, int, ncclComm_t, Stream>);
static_assert(
    kTakes<decltype(&ncclBroadcast), const void*, void*, Count, ncclDataType_t, int, ncclComm_t, Stream>);
static_assert(kTakes<decltype(&ncclAllReduce), const void*, void*, Count, ncclDataType_t, ncclRedOp_t,
                     ncclComm_t, Stream>);
static_assert(kTakes<decltype(&ncclReduceScatter), const void*, void*, Count, ncclDataType_t, ncclRedOp_t,
                     ncclComm_t, Stream>);
static_assert(
    kTakes<decltype(&ncclAllGather), const void*, void*, Count, ncclDataType_t, ncclComm_t, Stream>);
#if NCCL_VERSION_CODE >= 21900
static_assert(kTakes<decltype(&ncclMemAlloc), void**, Count>);
static_assert(kTakes<decltype(&ncclCommRegister), ncclComm_t, void*, Count, void**>);
static_assert(kTakes<decltype(&ncclCommDeregister), ncclComm_t, void*>);
#endif
#if NCCL_VERSION_CODE >= 22700
static_assert(kTakes<decltype(&ncclCommWindowRegister), ncclComm_t, void*, Count, ncclWindow_t*, int>);
static_assert(kTakes<decltype(&ncclCommWindowDeregister), ncclComm_t, ncclWindow_t>);
#endif
#if NCCL_VERSION_CODE >= 22800
static_assert(kTakes<decltype(&ncclAlltoAll), const void*, void*, Count, ncclDataType_t, ncclComm_t, Stream>);
#endif

}  // namespace internevo::cuda::nccl
