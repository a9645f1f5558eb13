// Attention, shared out over sequences, KV heads, tiles of query tokens and segments of long contexts.
#include "executor/attention/attention_tasks.h"
#include "executor/step.h"

namespace puna {
namespace {

const std::vector<QueryRun>& runs_of(const Step& step, const AttentionStage& stage) {
  return step.query_runs[stage.runs()];
}

AttentionArgs kernel_args(const Step& step, const AttentionStage& stage, const AttentionTile& tile) {
  const QueryRun& run = runs_of(step, stage)[static_cast<size_t>(tile.run)];
  const KvLayer& layer = step.plan.layers[static_cast<size_t>(stage.layer)];
  const BlockTables& tables = step.batch.kv[static_cast<size_t>(layer.group)];
  return {
      .q = step.floats(stage.q, run.first_row),
      .out = step.floats(stage.out, run.first_row),
      .num_heads = stage.num_heads,
      .num_kv_heads = stage.num_kv_heads,
      .head_dim = stage.head_dim,
      .value_dim = stage.value_dim,
      .kv_head = static_cast<int>(tile.kv_head),
      .token_begin = tile.token_begin,
      .token_end = tile.token_end,
      .first_position = run.first_position,
      .block_table = tables.of(run.sequence) + run.first_block,
      .blocks = tables.blocks,
      .kv_type = step.plan.kv_type,
      .layout = &layer.layout,
      .k_offset = layer.k_offset,
      .v_offset = layer.v_offset,
      .is_latent = layer.is_latent,
      .scale = stage.scale,
      .softcap = stage.softcap,
      .window = stage.window,
      .sinks = stage.sinks,
      .alibi = stage.alibi,
      .partial = step.attention_partials + tile.partial_offset,
      .first_segment = tile.first_segment,
      .last_segment = tile.last_segment,
  };
}

// The thread that finishes a tile's last piece adds its segments, in their order.
void run_piece(const Step& step, const AttentionArgs& args, const AttentionTile& tile, int64_t piece) {
  const Kernels& kernels = *step.plan.kernels;
  kernels.attention_segments(args, tile.first_segment_of(piece), tile.first_segment_of(piece + 1));
  std::atomic<int32_t>& arrived = step.attention_arrivals[tile.split_index];
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < tile.pieces) return;
  arrived.store(0, std::memory_order_relaxed);  // for the next stage
  kernels.combine_segments(args);
}

}  // namespace

void run_stage(const Step& step, const AttentionStage& stage, std::atomic<int64_t>& claimed) noexcept {
  AttentionTiles tiles(stage, runs_of(step, stage), step.num_threads);
  int64_t end = 0;              // of the tile's tasks
  while (!step.is_stopped()) {  // a long context takes seconds
    const int64_t task = claimed.fetch_add(1, std::memory_order_relaxed);
    while (task >= end) {
      if (!tiles.next()) return;
      end += tiles.tile().pieces;
    }
    const AttentionTile& tile = tiles.tile();
    const AttentionArgs args = kernel_args(step, stage, tile);
    if (tile.pieces == 1)
      step.plan.kernels->attention(args);
    else
      run_piece(step, args, tile, task - (end - tile.pieces));
    step.activity.finish_task(step.thread);
  }
}

}  // namespace puna
