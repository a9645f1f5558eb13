// Attention of encoders, shared out over texts, heads and runs of queries.
#pragma once

#include <cstdint>

#include "executor/program/program.h"

namespace puna {

// Floats that each thread needs for texts of at most so many tokens.
int64_t encoder_scratch(const Plan& plan, int64_t num_tokens);

}  // namespace puna
