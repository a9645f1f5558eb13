// Recurrence, shared out over sequences and parts of their states: within one, it goes token by token.
#include <algorithm>
#include <array>
#include <cstring>

#include "executor/recurrence.h"
#include "executor/step.h"

namespace puna {
namespace {

using Inputs = std::array<TokenRows<const float>, kMostRecurrenceInputs>;

int64_t floats_of(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(float)); }

const Buffer& buffer_of(const Plan& plan, int buffer) { return plan.buffers[static_cast<size_t>(buffer)]; }

TokenRows<float> rows_of(const Step& step, int buffer, int64_t token) {
  return {step.floats(buffer, token), floats_of(buffer_of(step.plan, buffer).row_bytes)};
}

template <typename Byte>
auto* layer_state(const RecurrenceStage& stage, Byte* state) {
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  return state == nullptr ? nullptr : reinterpret_cast<Float*>(state + stage.state_offset);
}

void run_tokens(const Step& step, const RecurrenceStage& stage, int64_t part, int64_t first_token,
                int64_t num_tokens, const uint8_t* before, uint8_t* after) {
  if (num_tokens == 0) return;
  Inputs inputs;
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    const TokenRows<float> rows = rows_of(step, stage.inputs[i], first_token);
    inputs[i] = {rows.data, rows.stride};
  }
  stage.run({.kernels = *step.plan.kernels,
             .part = part,
             .num_tokens = num_tokens,
             .inputs = std::span(inputs).first(stage.inputs.size()),
             .out = rows_of(step, stage.out, first_token),
             .before = layer_state(stage, before),
             .after = layer_state(stage, after)});
}

void run_part(const Step& step, const RecurrenceStage& stage, const SequenceState& state, int64_t part) {
  const int64_t first_draft = state.first_token + state.own_tokens;
  run_tokens(step, stage, part, state.first_token, state.own_tokens, state.before, state.after);
  run_tokens(step, stage, part, first_draft, state.drafts.count, state.after, nullptr);
}

void keep_inputs(const Step& step, const RecurrenceStage& stage, int64_t token, int64_t kept_row) {
  uint8_t* to = step.kept_inputs + kept_row * step.plan.kept_row_bytes + stage.kept_offset;
  for (const int input : stage.inputs) {
    const int64_t bytes = buffer_of(step.plan, input).row_bytes;
    std::memcpy(to, step.bytes(input, token), static_cast<size_t>(bytes));
    to += bytes;
  }
}

// How many parts a thread takes at once: single ones of a prompt, several where a token is soon done.
int64_t largest_run(const Step& step) {
  constexpr int64_t kTokens = 8;
  const auto tokens = static_cast<int64_t>(step.batch.tokens.size());
  return std::max<int64_t>(kTokens * static_cast<int64_t>(step.states.size()) / std::max<int64_t>(tokens, 1),
                           1);
}

}  // namespace

void run_stage(const Step& step, const RecurrenceStage& stage, WorkShares& shares) noexcept {
  const auto count = static_cast<int64_t>(step.states.size()) * stage.parts;
  const int64_t largest = largest_run(step);
  for (Range run; !step.is_stopped() && !(run = shares.take(step.thread, count, largest)).empty();) {
    for (int64_t i = run.begin; i < run.end; ++i) {
      const SequenceState& state = step.states[static_cast<size_t>(i / stage.parts)];
      run_part(step, stage, state, i % stage.parts);
      if (i % stage.parts > 0) continue;
      for (int64_t draft = 0; draft < state.drafts.count; ++draft)
        keep_inputs(step, stage, state.first_token + state.own_tokens + draft, state.first_kept + draft);
    }
    step.activity.finish_task(step.thread);
  }
}

void find_states(const Batch& batch, std::vector<SequenceState>& states) {
  states.clear();
  const BlockTables& tables = batch.kv.back();
  const std::vector<SequenceDrafts> all_drafts = drafts_of(batch);
  int64_t num_kept = 0;
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const int64_t begin = batch.sequence_starts[s], end = batch.sequence_starts[s + 1];
    if (begin == end) continue;
    const SequenceDrafts drafts = all_drafts[static_cast<size_t>(s)];
    const int32_t* blocks = tables.of(s);
    states.push_back({.before = blocks[0] < 0 ? nullptr : tables.blocks[blocks[0]],
                      .after = tables.blocks[blocks[1]],
                      .block = blocks[1],
                      .first_token = begin,
                      .own_tokens = end - begin - drafts.count,
                      .drafts = drafts,
                      .first_kept = num_kept});
    num_kept += drafts.count;
  }
}

int64_t num_drafts(std::span<const SequenceState> states) {
  return states.empty() ? 0 : states.back().first_kept + states.back().drafts.count;
}

void replay(const Plan& plan, const RecurrenceStage& stage, const uint8_t* kept, int64_t num_tokens,
            uint8_t* state) {
  Inputs inputs;
  const uint8_t* from = kept + stage.kept_offset;
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    inputs[i] = {reinterpret_cast<const float*>(from), floats_of(plan.kept_row_bytes)};
    from += buffer_of(plan, stage.inputs[i]).row_bytes;
  }
  for (int64_t part = 0; part < stage.parts; ++part)
    stage.run({.kernels = *plan.kernels,
               .part = part,
               .num_tokens = num_tokens,
               .inputs = std::span(inputs).first(stage.inputs.size()),
               .out = {},
               .before = layer_state(stage, state),
               .after = layer_state(stage, state)});
}

}  // namespace puna
