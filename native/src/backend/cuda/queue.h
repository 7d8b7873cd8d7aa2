// Where work is given to: a stream of a GPU, in the library for GPUs (INTERNEVO_CUDA_DEVICE), else of the model of one.
#pragma once

#ifdef INTERNEVO_CUDA_DEVICE
#include "backend/cuda/device/device_queue.h"
#else
#include "emulator/model_queue.h"
#endif
