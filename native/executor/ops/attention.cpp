// Attention: keys and values join the cache, then queries attend to it. How the work of the second is shared
// out is in executor/attention_tasks.h.
#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

void store_kv(ProgramBuilder& builder, int layer, int64_t num_kv_heads, int64_t head_dim, int k, int v) {
  const auto run = [=](const RowRun& row) {
    const Plan& plan = row.step.plan;
    const KvLayer& kept = plan.layers[static_cast<size_t>(layer)];
    const KvSlot& kv = row.step.kv_slot(kept, row.row);
    const int64_t head = row.first(num_kv_heads), at = head * head_dim;
    row.kernels.store_kv(plan.kv_type, kept.layout, row.at(k) + at, row.at(v) + at, static_cast<int>(head),
                         static_cast<int>(row.count(num_kv_heads)), static_cast<int>(head_dim), kv.slot,
                         kv.block + kept.k_offset, kv.block + kept.v_offset);
  };
  builder.append(builder.token_stage(Domain::kTokens), {{k, v}, kNoBuffer, num_kv_heads, run});
}

void attention(ProgramBuilder& builder, const OpCall& call) {
  call.expect(3, 1, std::min(call.tensors.size(), size_t{1}));
  const int q = call.inputs[0], k = call.inputs[1], v = call.inputs[2], out = call.outputs[0];
  const auto num_heads = static_cast<int>(call.integer("num_heads", 1, kMaxHeads));
  const auto num_kv_heads = static_cast<int>(call.integer("num_kv_heads", 1, num_heads));
  const auto head_dim = static_cast<int>(call.integer("head_dim", 1, kMaxHeadDim));
  require(num_heads % num_kv_heads == 0,
          text(num_heads) + " heads cannot be shared out over " + text(num_kv_heads) + " KV heads");
  const float softcap = call.number("softcap");
  require(softcap >= 0, "Attention.softcap is negative");
  const int64_t q_width = int64_t{num_heads} * head_dim, kv_width = int64_t{num_kv_heads} * head_dim;
  builder.expect_width(q, q_width), builder.expect_width(out, q_width);
  builder.expect_width(k, kv_width), builder.expect_width(v, kv_width);
  require(out != q && out != k && out != v, "attention cannot write over its input");
  const auto layer = static_cast<int>(call.integer("layer", 0, kMaxHeads));
  const int64_t window = call.integer("window", 0, INT32_MAX);
  builder.add_layer(layer, num_kv_heads, head_dim, window, k, v);
  require(builder.common_domain(call.inputs) == Domain::kTokens, "attention after the choice of rows");
  store_kv(builder, layer, num_kv_heads, head_dim, k, v);
  const float* sinks = call.tensors.empty() ? nullptr : builder.vector(call.tensor(0), num_heads);
  const int stage = builder.add_stage(AttentionStage{layer, num_heads, num_kv_heads, head_dim,
                                                     call.number("scale"), softcap, window, sinks, q, out});
  builder.read(q, stage);
  builder.write(out, Domain::kTokens, stage, {});  // where tokens are shows in how far apart they are
}

constexpr OpDefinition kOps[] = {{"Attention", attention}};

}  // namespace

const OpFamily kAttentionOps = kOps;

}  // namespace puna
