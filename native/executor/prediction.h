// What a run of the model must compute so that its prediction head can follow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/batch.h"
#include "executor/program.h"

namespace puna {

// The tokens of sequences with a head state (others: nullptr) that have no row: Batch::hidden has to name
// them, since the head needs the hidden state of each.
std::vector<int32_t> tokens_without_row(const Batch& batch, std::span<HeadState* const> states);

}  // namespace puna
