// How the work of token stages is shared out over threads.
//
// With fewer rows than threads, rows are cut by columns as far as the stage's ops allow. A stage whose single
// row cannot be cut, or is so short that a barrier would cost more than it, is replicated: every thread
// computes the whole row into memory of its own, and goes on with that.
#include <algorithm>
#include <numeric>

#include "executor/program/builder.h"

namespace puna {
namespace {

constexpr int64_t kPieceColumns = 32;          // a block of quantized activations; two vectors of floats
constexpr int64_t kReplicatedBytes = 1 << 13;  // takes a thread less than a microsecond to write

bool is_short(const Plan& plan, const TokenStage& stage) {
  int64_t bytes = 0;
  for (const TokenOp& op : stage.ops)
    if (op.out != kNoBuffer) bytes += plan.buffers[static_cast<size_t>(op.out)].row_bytes;
  return bytes <= kReplicatedBytes;
}

bool writes_only_replicated(const Plan& plan, const TokenStage& stage) {
  return std::all_of(stage.ops.begin(), stage.ops.end(), [&](const TokenOp& op) {
    return op.out != kNoBuffer && plan.buffers[static_cast<size_t>(op.out)].replicated;
  });
}

// Outputs of a stage that is not replicated are not replicated either.
void share_written(Plan& plan, const Stage& stage) {
  const auto share = [&](int b) {
    if (b != kNoBuffer) plan.buffers[static_cast<size_t>(b)].replicated = false;
  };
  if (const auto* tokens = std::get_if<TokenStage>(&stage)) {
    if (tokens->replicated) return;
    for (const TokenOp& op : tokens->ops) share(op.out);
  } else if (const auto* linear = std::get_if<LinearStage>(&stage)) {
    for (const LinearPart& part : linear->parts) share(part.out);
  } else if (const auto* experts = std::get_if<ExpertStage>(&stage)) {
    const ExpertLayer& layer = *experts->layer;
    for (const int b : {layer.runs, layer.row_of_visit, layer.visit_of_choice, layer.hidden, layer.out})
      share(b);
  } else if (const auto* recurrence = std::get_if<RecurrenceStage>(&stage)) {
    share(recurrence->out);
  } else if (const auto* attention = std::get_if<AttentionStage>(&stage)) {
    share(attention->out);
  } else if (const auto* encoder = std::get_if<EncoderAttentionStage>(&stage)) {
    share(encoder->out);
  }
}

}  // namespace

int64_t pieces_of_columns(int64_t width) { return width % kPieceColumns == 0 ? width / kPieceColumns : 1; }

void share_out_token_stages(Plan& plan) {
  std::vector<TokenStage*> stages;
  for (Stage& stage : plan.stages) {
    if (auto* tokens = std::get_if<TokenStage>(&stage)) stages.push_back(tokens);
  }
  for (TokenStage* stage : stages) {
    stage->pieces = 0;
    for (const TokenOp& op : stage->ops) stage->pieces = std::gcd(stage->pieces, op.pieces);
    stage->replicated = stage->pieces == 1 || is_short(plan, *stage);
  }
  for (Buffer& buffer : plan.buffers) buffer.replicated = true;
  plan.buffers[static_cast<size_t>(plan.result)].replicated = false;  // the caller's to read
  if (plan.prediction) plan.buffers[static_cast<size_t>(plan.prediction->result)].replicated = false;
  // A buffer that one stage shares is shared by all, which may make further stages share what they write.
  for (bool changed = true; changed;) {
    for (const Stage& stage : plan.stages) share_written(plan, stage);
    changed = false;
    for (TokenStage* stage : stages) {
      if (!stage->replicated || writes_only_replicated(plan, *stage)) continue;
      stage->replicated = false;
      changed = true;
    }
  }
}

}  // namespace puna
