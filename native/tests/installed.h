// Where the programs and libraries are that tests start or open. installed.cpp alone is told by the build, so that every other object
// of the tests can serve a bundle too.
#pragma once

namespace internevo::built {

/// Absolute, or from the folder of the program that asks (`located` in trainer/process.h). Empty: this build has none.
extern const char* const kMpirun;
extern const char* const kTrainer;
extern const char* const kProbe;
extern const char* const kProgramTest;  ///< of tests/cuda
extern const char* const kGpuCheck;
extern const char* const kPeerScripts;  ///< a folder
extern const char* const kCudaLibrary;
extern const char* const kModelLibrary;
extern const char* const kTracedLibrary;
extern const char* const kNcclModel;
extern const char* const kNcclModelOld;
extern const char* const kNvmlModel;
extern const char* const kKernelCases;  ///< the model's where nvcc made none
extern const char* const kKernelCasesModel;

}  // namespace internevo::built
