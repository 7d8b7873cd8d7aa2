#include "cuda/kernel_cases.cpp"  // nvcc's compilation of the one source
