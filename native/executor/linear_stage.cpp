// Matrix products, shared out over rows of the weights.
#include <algorithm>

#include "executor/step.h"

namespace puna {
namespace {

int64_t num_tiles(const LinearPart& part) { return (part.weight.rows + kRowTile - 1) / kRowTile; }

struct Work {
  int64_t tiles;  // of all parts, one after the other
  int64_t units;  // contiguous runs of tiles that a thread takes at a time
};

// Long runs, so that memory is read in order; a few of them per thread where there is much to do, so that a
// thread which lost its core to another process does not keep the others waiting.
Work share_out(const Step& step, const LinearStage& stage, int64_t num_rows) {
  constexpr int64_t kUnitBytes = int64_t{1} << 16;
  constexpr int64_t kUnitsPerThread = 8;
  constexpr int64_t kRowsPerPass = 8;  // about as many as cost one reading of the weights
  int64_t tiles = 0, bytes = 0;
  for (const LinearPart& part : stage.parts) {
    tiles += num_tiles(part);
    bytes += part.weight.rows * static_cast<int64_t>(part.weight.row_bytes);
  }
  const int64_t passes = (num_rows + kRowsPerPass - 1) / kRowsPerPass;
  const int64_t wanted = bytes * passes / kUnitBytes;
  const int64_t threads = step.num_threads;
  return {tiles, std::min(tiles, std::clamp(wanted, threads, kUnitsPerThread * threads))};
}

void run_tiles(const Step& step, const LinearPart& part, int64_t num_rows, int64_t begin, int64_t end) {
  step.plan.kernels->linear({
      .weight = &part.weight,
      .x = step.bytes(part.x, 0),
      .num_tokens = num_rows,
      .row_begin = begin * kRowTile,
      .row_end = std::min(end * kRowTile, part.weight.rows),
      .out = step.floats(part.out, 0),
      .out_stride = part.weight.rows,
      .bias = part.bias,
      .residual = part.residual < 0 ? nullptr : step.floats(part.residual, 0),
  });
}

}  // namespace

void run_stage(const Step& step, const LinearStage& stage, std::atomic<int64_t>& claimed) noexcept {
  const int64_t num_rows = step.num_rows(stage.domain);
  if (num_rows == 0) return;
  const Work work = share_out(step, stage, num_rows);
  for (int64_t unit; (unit = claimed.fetch_add(1, std::memory_order_relaxed)) < work.units;) {
    const int64_t begin = work.tiles * unit / work.units, end = work.tiles * (unit + 1) / work.units;
    int64_t first = 0;  // tile of the part
    for (const LinearPart& part : stage.parts) {
      const int64_t tiles = num_tiles(part);
      const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, tiles);
      if (from < to) run_tiles(step, part, num_rows, from, to);
      first += tiles;
    }
  }
}

}  // namespace puna
