// Ops of which every row needs only itself.
#include <algorithm>

#include "executor/step.h"

namespace puna {
namespace {

void run_row(const Step& step, const TokenStage& stage, int64_t row, int64_t begin, int64_t end) {
  const RowRun run{step, *step.plan.kernels, row, begin, end, stage.pieces};
  for (const TokenOp& op : stage.ops) op.run(run);
}

}  // namespace

void run_stage(const Step& step, const TokenStage& stage) noexcept {
  const int64_t rows = step.num_rows(stage.domain), pieces = stage.pieces, count = rows * pieces;
  int64_t next = count * step.thread / step.num_threads, last = count * (step.thread + 1) / step.num_threads;
  if (is_replicated(step, stage)) next = 0, last = count;
  while (next < last) {
    const int64_t row = next / pieces, end = std::min((row + 1) * pieces, last);
    run_row(step, stage, row, next - row * pieces, end - row * pieces);
    next = end;
  }
}

}  // namespace puna
