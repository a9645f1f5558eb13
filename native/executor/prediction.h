// Prediction heads: what the plan has of one, and what a sequence has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "executor/batch.h"

namespace puna {

// The stages of a head that predicts the token after next, behind those of the model itself (MTP;
// DeepSeek-AI, 2024, section 2.2). Each run goes through one of both. The head has a single attention layer,
// so that what it keeps of a token hangs on nothing that it computed for others.
struct PredictionPlan {
  size_t begin;      // index of the first stage
  size_t attention;  // of the stage before which keys and values are kept
  int result;
  int hidden;  // what the result is made of, as wide as the model's
};

// What a prediction head goes on with behind a sequence's computed tokens.
struct HeadState {
  std::vector<float> hidden;     // behind the last of them; empty: unknown, or there is none
  bool has_kept_latest = false;  // the head's keys and values of the token that comes next are there

  void forget() { *this = {}; }
};

// The latest token of each sequence of a batch, and how many tokens the head is to draft behind it.
struct WantedDrafts {
  std::span<HeadState* const> states;
  std::span<const int64_t> counts;
};

// The tokens of sequences with a head state (others: nullptr) that have no row: Batch::hidden has to name
// them, since the head needs the hidden state of each.
std::vector<int32_t> tokens_without_row(const Batch& batch, std::span<HeadState* const> states);

}  // namespace puna
