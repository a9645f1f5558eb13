// Ops of which every row needs only itself.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor/step.h"

namespace puna {
namespace {

// Pieces [begin, end) of one row, of the stage's `pieces`.
struct RowRunner {
  const Step& step;
  const Kernels& kernels;
  int64_t row, begin, end, pieces;

  float* at(int buffer) const { return step.floats(buffer, row); }
  // The first of this run's items, and how many they are, of `count` in the row.
  int64_t first(int64_t count) const { return count / pieces * begin; }
  int64_t num(int64_t count) const { return count / pieces * (end - begin); }

  void operator()(const op::Embed& op) const {
    const int32_t token = step.batch.tokens[static_cast<size_t>(row)];
    dequantize(op.weight.type, op.weight.row(token), at(op.out), op.weight.cols);
  }
  void operator()(const op::RmsNorm& op) const {
    const int64_t g = first(op.num_groups);
    const float* x = at(op.x);
    float* out = at(op.out);
    for (int64_t i = g * op.group; i < (g + num(op.num_groups)) * op.group; i += op.group) {
      kernels.rms_norm(x + i, op.weight, op.eps, op.group, out + i);
    }
  }
  void operator()(const op::Quantize& op) const {
    const int64_t column = first(op.cols);
    kernels.quantize_row(at(op.x) + column, num(op.cols),
                         step.bytes(op.out, row) + kernels.quantized_row_bytes(column));
  }
  void operator()(const op::RopeTable& op) const {
    float* out = at(op.out);
    const double position = step.batch.positions[static_cast<size_t>(row)];
    for (int64_t i = 0; i < op.half; ++i) {
      const double angle = position * static_cast<double>(op.inv_freq[i]);
      out[i] = static_cast<float>(std::cos(angle)) * op.scale;
      out[op.half + i] = static_cast<float>(std::sin(angle)) * op.scale;
    }
  }
  void operator()(const op::Rope& op) const {
    const float* table = at(op.table);
    op.rotate(at(op.x) + first(op.num_heads) * op.head_dim, num(op.num_heads), op.head_dim, op.rotary_dim,
              table, table + op.rotary_dim / 2);
  }
  void operator()(const op::StoreKv& op) const {
    const KvLayer& layer = step.plan.layers[static_cast<size_t>(op.layer)];
    const KvSlot& kv = step.kv_slot(layer, row);
    const int64_t head = first(op.num_kv_heads);
    kernels.store_kv(step.plan.kv_type, layer.layout, at(op.k) + head * op.head_dim,
                     at(op.v) + head * op.head_dim, static_cast<int>(head),
                     static_cast<int>(num(op.num_kv_heads)), op.head_dim, kv.slot, kv.block + layer.k_offset,
                     kv.block + layer.v_offset);
  }
  void operator()(const op::Glu& op) const {
    const int64_t i = first(op.width);
    kernels.glu(op.activation, at(op.gate) + i, at(op.up) + i, num(op.width), at(op.out) + i);
  }
  void operator()(const op::Binary& op) const {
    const int64_t i = first(op.width);
    op.function(at(op.a) + i, at(op.b) + i, num(op.width), at(op.out) + i);
  }
  void operator()(const op::Unary& op) const {
    const int64_t i = first(op.width);
    op.function(at(op.x) + i, op.parameter, num(op.width), at(op.out) + i);
  }
  void operator()(const op::GatherRows& op) const {
    const int32_t token = step.batch.rows[static_cast<size_t>(row)];
    std::memcpy(at(op.out), step.floats(op.x, token),
                static_cast<size_t>(step.plan.buffers[static_cast<size_t>(op.out)].row_bytes));
  }
};

void run_row(const Step& step, const TokenStage& stage, int64_t row, int64_t begin, int64_t end) {
  const RowRunner runner{step, *step.plan.kernels, row, begin, end, stage.pieces};
  for (const TokenOp& op : stage.ops) std::visit(runner, op);
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
