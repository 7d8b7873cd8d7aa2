// What the parts of the model know of the block that is running. Internal to model/.
#pragma once

#include <cstdint>
#include <string>

namespace internevo::cuda::model {

int currentThread();
int threadsOfBlock();
int orderOfRun();  ///< setThreadOrder
/// Lets the other threads run; a round in which nothing was noteProgress()ed is a deadlock.
void yieldThread();
void noteProgress();
/// Ends the block with this error.
[[noreturn]] void failBlock(const std::string& problem);
/// What waiting threads wait for, for the message of a deadlock.
void noteWait(const char* what);

unsigned char* sharedMemory();
std::int64_t sharedMemoryBytes();
/// Address in the 18-bit window of shared memory; fails where the bytes are not of this block.
std::uint32_t sharedAddressOf(const void* pointer, std::int64_t bytes);
/// The byte at such an address; fails where there is none.
unsigned char* sharedByte(std::uint32_t address);

// Parts with a state of their own: at the beginning and the end of a block.
void beginBulk(int threads);
void endBulk();
void beginProducts(int threads);
void endProducts();

/// Words of shared memory that ordinary stores wrote and no fence.proxy.async of their thread followed.
void requireFenced(std::uint32_t address, std::int64_t bytes, const char* reader);

}  // namespace internevo::cuda::model
