// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace puna::kvcached {

// Bytes of one allocation or pool: half of the addresses that x86-64 gives a process.
inline constexpr int64_t kMostAddresses = int64_t{1} << 46;

// In bytes: what the system has available, or less if a control group of this process allows less.
int64_t available_memory();

// Throws Failure if so much memory, about to be committed, is more than there is: the system would not refuse
// it, but end a process.
void check_available(int64_t bytes);

}  // namespace puna::kvcached
