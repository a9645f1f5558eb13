// The rows of a step, each sampled by its own sampler, on all threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/threads/thread_pool.h"
#include "kernels/kernels.h"
#include "sampler/sampler.h"
#include "sampler/token_mask.h"

namespace puna {

// Tokens that the model was given beyond the last sampled one, to be checked in one step: draft j of a
// sequence is a draft of what its row j gives, and row j + 1 holds only if the draft was right.
struct Drafts {
  std::span<const int32_t> tokens;
  std::span<const int32_t> starts;  // [n + 1] sampler i's are tokens [starts[i], starts[i + 1]); empty: none
};

struct SampledBatch {
  std::vector<Sample> samples;
  std::vector<int32_t> starts;      // [n + 1] sampler i's samples are [starts[i], starts[i + 1])
  std::vector<std::string> errors;  // [n] why sampler i has none; empty: it has some
};

// Sampler i owns the next 1 + (its drafts) of `logits`, [num_rows, vocab_size]. It samples and commits them
// one after the other until a token differs from its draft, or a row cannot be sampled, as if the rows had
// come one by one. Error if the rows do not fit. The samplers are different ones.
// masks: of each row, null where anything may be drawn; empty: there are none. Logits that a mask forbids
// may be overwritten with -infinity.
SampledBatch sample_batch(ThreadPool& pool, const Kernels& kernels, float* logits, int64_t num_rows,
                          int64_t vocab_size, std::span<Sampler* const> samplers, const Drafts& drafts,
                          std::span<const TokenMask* const> masks = {});

}  // namespace puna
