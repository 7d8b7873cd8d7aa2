#include "installed.h"

namespace internevo::built {

const char* const kMpirun = INTERNEVO_MPIRUN;
const char* const kTrainer = INTERNEVO_TRAINER;
const char* const kProbe = INTERNEVO_PROBE;
const char* const kProgramTest = INTERNEVO_PROGRAM_TEST;
const char* const kGpuCheck = INTERNEVO_GPU_CHECK;
const char* const kPeerScripts = INTERNEVO_PEER_SCRIPTS;
const char* const kCudaLibrary = INTERNEVO_CUDA_LIBRARY_FILE;
const char* const kModelLibrary = INTERNEVO_MODEL_LIBRARY;
const char* const kTracedLibrary = INTERNEVO_TRACED_LIBRARY;
const char* const kNcclModel = INTERNEVO_NCCL_MODEL;
const char* const kNcclModelOld = INTERNEVO_NCCL_MODEL_OLD;
const char* const kNvmlModel = INTERNEVO_NVML_MODEL;
const char* const kKernelCases = INTERNEVO_KERNEL_CASES;
const char* const kKernelCasesModel = INTERNEVO_KERNEL_CASES_MODEL;

}  // namespace internevo::built
