// Ops of which every row needs only itself.
#include <cmath>
#include <cstring>

#include "executor/step.h"

namespace puna {
namespace {

struct RowRunner {
  const Step& step;
  const Kernels& kernels;
  int64_t row;

  float* at(int buffer) const { return step.floats(buffer, row); }

  void operator()(const op::Embed& op) const {
    const int32_t token = step.batch.tokens[static_cast<size_t>(row)];
    dequantize(op.weight.type, op.weight.row(token), at(op.out), op.weight.cols);
  }
  void operator()(const op::RmsNorm& op) const {
    const float* x = at(op.x);
    float* out = at(op.out);
    for (int64_t g = 0; g < op.num_groups; ++g) {
      kernels.rms_norm(x + g * op.group, op.weight, op.eps, op.group, out + g * op.group);
    }
  }
  void operator()(const op::Quantize& op) const { kernels.quantize_row(at(op.x), op.cols, at(op.out)); }
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
    op.rotate(at(op.x), op.num_heads, op.head_dim, op.rotary_dim, table, table + op.rotary_dim / 2);
  }
  void operator()(const op::StoreKv& op) const {
    const KvSlot& kv = step.kv_slots[static_cast<size_t>(row)];
    const KvLayer& layer = step.plan.layers[static_cast<size_t>(op.layer)];
    kernels.store_kv(step.plan.kv_type, layer.layout, at(op.k), at(op.v), op.num_kv_heads, op.head_dim,
                     kv.slot, kv.block + layer.k_offset, kv.block + layer.v_offset);
  }
  void operator()(const op::Glu& op) const {
    kernels.glu(op.activation, at(op.gate), at(op.up), op.width, at(op.out));
  }
  void operator()(const op::Binary& op) const { op.function(at(op.a), at(op.b), op.width, at(op.out)); }
  void operator()(const op::Unary& op) const { op.function(at(op.x), op.parameter, op.width, at(op.out)); }
  void operator()(const op::GatherRows& op) const {
    const int32_t token = step.batch.rows[static_cast<size_t>(row)];
    std::memcpy(at(op.out), step.floats(op.x, token),
                static_cast<size_t>(step.plan.buffers[static_cast<size_t>(op.out)].row_bytes));
  }
};

}  // namespace

void run_stage(const Step& step, const TokenStage& stage, int thread) noexcept {
  const int64_t rows = step.num_rows(stage.domain);
  const int64_t begin = rows * thread / step.num_threads, end = rows * (thread + 1) / step.num_threads;
  for (int64_t row = begin; row < end; ++row) {
    const RowRunner runner{step, *step.plan.kernels, row};
    for (const TokenOp& op : stage.ops) std::visit(runner, op);
  }
}

}  // namespace puna
