// Features of this machine's processor, for display and for choosing kernels (select_kernels in kernels.h).
#pragma once

#include <string>
#include <vector>

namespace puna {

// Instruction sets with kernels that this machine can run, best first.
std::vector<std::string> available_isas();

// Vector extensions of the processor that the kernels know of.
std::vector<std::string> cpu_features();

}  // namespace puna
