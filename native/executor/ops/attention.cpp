// Attention: keys and values join the cache, then queries attend to it. How the work of the second is shared
// out is in executor/attention_tasks.h.
#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// layer: its place in the plan. v: kNoBuffer where values are columns of the keys.
void store_kv(ProgramBuilder& builder, int layer, int64_t num_kv_heads, int64_t head_dim, int k, int v) {
  const auto run = [=](const RowRun& row) {
    const Plan& plan = row.step.plan;
    const KvLayer& kept = plan.layers[static_cast<size_t>(layer)];
    const KvSlot& kv = row.step.kv_slot(kept, row.row);
    const int64_t head = row.first(num_kv_heads), at = head * head_dim;
    row.kernels.store_kv(plan.kv_type, kept.layout, row.at(k) + at, v == kNoBuffer ? nullptr : row.at(v) + at,
                         static_cast<int>(head), static_cast<int>(row.count(num_kv_heads)),
                         static_cast<int>(head_dim), kv.slot, kv.block + kept.k_offset,
                         kv.block + kept.v_offset);
  };
  std::vector<int> inputs = {k};
  if (v != kNoBuffer) inputs.push_back(v);
  builder.append(builder.token_stage(Domain::kTokens), {std::move(inputs), kNoBuffer, num_kv_heads, run});
}

void attend(ProgramBuilder& builder, const OpCall& call, const AttentionStage& stage) {
  builder.expect_width(stage.q, int64_t{stage.num_heads} * stage.head_dim);
  builder.expect_width(stage.out, int64_t{stage.num_heads} * stage.value_dim);
  for (const int input : call.inputs) require(stage.out != input, "attention cannot write over its input");
  const int at = builder.add_stage(stage);
  builder.read(stage.q, at);
  builder.write(stage.out, stage.domain, at, {});  // where tokens are shows in how far apart they are
}

// Keeps the keys and values of the step's tokens, and attends to those of the tokens so far.
void keep_and_attend(ProgramBuilder& builder, const OpCall& call, AttentionStage stage, int v) {
  const int k = call.inputs[1];
  stage.domain = builder.domain(stage.q);
  require(stage.domain != Domain::kSampled, "attention of rows that are to be sampled");
  const int64_t kept = stage.is_chunked ? builder.plan().chunk : stage.window;  // no chunk reaches further
  stage.layer = builder.add_layer(stage.layer, stage.num_kv_heads, stage.head_dim, kept, k, v);
  require(builder.common_domain(std::span(call.inputs).subspan(1)) == Domain::kTokens,
          "keys and values of chosen rows alone");
  store_kv(builder, stage.layer, stage.num_kv_heads, stage.head_dim, k, v);
  attend(builder, call, stage);
}

// What attention with heads of its own keys and values is told, but for tensors.
AttentionStage attention_stage(const OpCall& call) {
  const auto num_heads = static_cast<int>(call.integer("num_heads", 1, kMaxHeads));
  const auto num_kv_heads = static_cast<int>(call.integer("num_kv_heads", 1, num_heads));
  const auto head_dim = static_cast<int>(call.integer("head_dim", 1, kMaxHeadDim));
  require(num_heads % num_kv_heads == 0,
          text(num_heads) + " heads cannot be shared out over " + text(num_kv_heads) + " KV heads");
  const float softcap = call.number("softcap");
  require(softcap >= 0, "Attention.softcap is negative");
  const auto layer = static_cast<int>(call.integer("layer", 0, kMaxHeads));
  const int64_t window = call.integer("window", 0, INT32_MAX);
  return {Domain::kTokens,      layer,   num_heads, num_kv_heads, head_dim, head_dim,
          call.number("scale"), softcap, window,    nullptr,      0.0f,     call.inputs[0],
          call.outputs[0]};
}

void cut_by_chunks(ProgramBuilder& builder, int64_t chunk, AttentionStage& stage) {
  int64_t& known = builder.plan().chunk;
  require(chunk % kBlockTokens == 0, "chunks of " + text(chunk) + " tokens are not whole blocks");
  require(known == 0 || known == chunk, "layers have chunks of different sizes");
  require(stage.window == 0, "an attention has chunks and a window");
  known = chunk;
  stage.is_chunked = true;
}

void attention(ProgramBuilder& builder, const OpCall& call) {
  call.expect(3, 1, std::min(call.tensors.size(), size_t{1}));
  AttentionStage stage = attention_stage(call);
  stage.alibi = call.number("alibi");
  require(stage.alibi >= 0, "Attention.alibi is negative");
  for (const int input : {call.inputs[1], call.inputs[2]})
    builder.expect_width(input, int64_t{stage.num_kv_heads} * stage.head_dim);
  if (const int64_t chunk = call.integer("chunk", 0, INT32_MAX); chunk > 0)
    cut_by_chunks(builder, chunk, stage);
  if (!call.tensors.empty()) stage.sinks = builder.vector(call.tensor(0), stage.num_heads);
  keep_and_attend(builder, call, stage, call.inputs[2]);
}

// To what an earlier layer keeps: also of chosen rows alone, whose sequences' tokens are all kept by then.
void shared_attention(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  AttentionStage stage = attention_stage(call);
  stage.domain = builder.domain(stage.q);
  require(stage.domain != Domain::kSampled, "attention of rows that are to be sampled");
  const int place = builder.place_of(stage.layer);
  const KvLayer& kept = builder.plan().layers[static_cast<size_t>(place)];
  const bool sees_less = 0 < stage.window && stage.window < kept.window;
  require(kept.num_kv_heads == stage.num_kv_heads && kept.head_dim == stage.head_dim &&
              (kept.window == stage.window || sees_less) && !kept.is_latent,
          "layer " + text(stage.layer) + " keeps other keys and values than are to be read");
  stage.layer = place;
  attend(builder, call, stage);
}

// Its values are the first columns of its keys, which are of one head.
void latent_attention(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const auto num_heads = static_cast<int>(call.integer("num_heads", 1, kMaxHeads));
  const auto head_dim = static_cast<int>(call.integer("head_dim", 1, kMaxHeadDim));
  const auto value_dim = static_cast<int>(call.integer("value_dim", 1, std::min(head_dim, kMaxLatentDim)));
  require(value_dim % kKvGroup == 0,
          "values of " + text(value_dim) + " columns of a latent, no multiple of " + text(kKvGroup));
  builder.expect_width(call.inputs[1], head_dim);
  const auto layer = static_cast<int>(call.integer("layer", 0, kMaxHeads));
  keep_and_attend(builder, call,
                  {Domain::kTokens, layer, num_heads, 1, head_dim, value_dim, call.number("scale"), 0.0f, 0,
                   nullptr, 0.0f, call.inputs[0], call.outputs[0]},
                  kNoBuffer);
}

constexpr OpDefinition kAttentionDefinitions[] = {
    {"Attention", attention}, {"SharedAttention", shared_attention}, {"LatentAttention", latent_attention}};

}  // namespace

const OpFamily kAttentionOps = kAttentionDefinitions;

}  // namespace puna
