// Prediction heads: what the plan has of one, and what a sequence has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "executor/batch.h"

namespace puna {

// The stages of a head that predicts the token after next, behind those of the model itself (MTP;
// DeepSeek-AI, 2024, section 2.2). Each run goes through one of both. A head that keeps keys and values has a
// single attention layer, so that what it keeps of a token hangs on nothing that it computed for others.
struct PredictionPlan {
  size_t begin;      // index of the first stage
  size_t attention;  // of the stage before which keys and values are kept
  int result;
  int hidden;  // what the result is made of, as wide as the model's
  // Whether it keeps keys and values. One that does not attends to what the model keeps, which ends before
  // the latest token: its runs are at the position of the last token that is kept, whatever their depth
  // (Gemma 4's).
  bool keeps;
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

}  // namespace puna
