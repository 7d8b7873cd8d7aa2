// What the compiler calls at every access to memory of code that is built with -fsanitize=thread. Nothing of that sanitizer's
// library is used: accesses to the device's memory go to the trace of the step that is being done.
#include <cstdint>

#include "emulator/trace.h"

using internevo::cuda::model::noteAccess;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read_range(void* data, unsigned long bytes) {
  noteAccess(data, static_cast<std::int64_t>(bytes), false);
}
void __tsan_write_range(void* data, unsigned long bytes) {
  noteAccess(data, static_cast<std::int64_t>(bytes), true);
}

#define INTERNEVO_ACCESS(bytes)                                                     \
  void __tsan_read##bytes(void* data) { noteAccess(data, bytes, false); }           \
  void __tsan_write##bytes(void* data) { noteAccess(data, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* data) { noteAccess(data, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* data) { noteAccess(data, bytes, true); }
INTERNEVO_ACCESS(1)
INTERNEVO_ACCESS(2)
INTERNEVO_ACCESS(4)
INTERNEVO_ACCESS(8)
INTERNEVO_ACCESS(16)

/// Flags of the program's own, never of the device's memory.
unsigned char __tsan_atomic8_load(const volatile unsigned char* data, int) {
  return __atomic_load_n(data, __ATOMIC_SEQ_CST);
}

}  // extern "C"
