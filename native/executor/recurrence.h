// Layers whose tokens change a state, one after the other. What a step does with the state of a sequence is
// the same for all of them; how a state changes is said by the ops (ops/recurrence.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/batch.h"
#include "executor/program/program.h"

namespace puna {

inline constexpr size_t kMostRecurrenceInputs = 8;

// The state of one sequence in a step: all layers', behind some number of tokens.
//
// The sequence's own tokens change it. Drafts only read it: their inputs are kept, so that those that turn
// out right can change it afterwards (Program::replay).
struct SequenceState {
  const uint8_t* before;  // nullptr: all zeros
  uint8_t* after;         // perhaps the same memory
  int32_t block;          // where that is
  int64_t first_token, own_tokens;
  SequenceDrafts drafts;
  int64_t first_kept;  // the row of the kept inputs that belongs to its first draft
};

// Tokens of one sequence through one part of a layer's state.
struct RecurrenceRun {
  const Kernels& kernels;
  int64_t part, num_tokens;
  std::span<const TokenRows<const float>> inputs;  // of the first of these tokens
  TokenRows<float> out;                            // nothing, if only the state is wanted
  const float* before;                             // the layer's state; nullptr: zeros
  float* after;                                    // nullptr: not wanted
};

// Of each sequence with tokens; the batch has been checked.
void find_states(const Batch& batch, std::vector<SequenceState>& states);

// How many of a step's tokens are drafts.
int64_t num_drafts(std::span<const SequenceState> states);

// Takes so many drafts, whose inputs were kept, through the stage's part of a state.
void replay(const Plan& plan, const RecurrenceStage& stage, const uint8_t* kept, int64_t num_tokens,
            uint8_t* state);

}  // namespace puna
