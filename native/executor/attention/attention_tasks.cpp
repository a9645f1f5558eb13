#include "executor/attention/attention_tasks.h"

#include <algorithm>

namespace puna {
namespace {

// Enough for threads to even out, few enough that putting segments together costs next to nothing.
constexpr int64_t kTasksPerThread = 4;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<QueryRun> query_runs(const Batch& batch, Domain domain, int64_t chunk) {
  std::vector<QueryRun> runs;
  int32_t next = -1, end = -1;  // the token behind the last run's, and the end of its sequence's
  for (int64_t row = 0; row < num_rows(batch, domain); ++row) {
    const int32_t token = token_of(batch, domain, row);
    const int64_t position = batch.positions[static_cast<size_t>(token)];
    const int64_t begin = chunk == 0 ? 0 : position / chunk * chunk;  // of the chunk
    if (token == next && token < end && (chunk == 0 || position > begin)) {
      ++runs.back().num_tokens;
    } else {
      const auto starts = batch.sequence_starts;
      const auto after = std::upper_bound(starts.begin(), starts.end(), token);
      runs.push_back({after - starts.begin() - 1, row, 1, position - begin, begin / kBlockTokens});
      end = *after;
    }
    next = token + 1;
  }
  return runs;
}

AttentionTiles::AttentionTiles(const AttentionStage& stage, std::span<const QueryRun> runs, int num_threads)
    : stage_(stage),
      runs_(runs),
      heads_(stage.num_heads / stage.num_kv_heads),
      tile_tokens_(std::max(int64_t{1}, kMaxAttentionRows / heads_)) {
  tile_.run = -1;
  tile_.kv_head = stage.num_kv_heads;
  if (num_threads == 1) return;  // all tiles in one piece
  AttentionTiles all(stage, runs, 1);
  int64_t total = 0;
  while (all.next()) total += all.work();
  share_ = divide_up(total, kTasksPerThread * num_threads);
  hold_back(total);
}

void AttentionTiles::hold_back(int64_t total_work) {
  if (total_work * partial_floats(stage_.value_dim) <= kMostPartialFloats) return;
  AttentionTiles all(stage_, runs_, 1);
  all.share_ = share_;
  int64_t wanted = 0;
  while (all.next()) wanted += all.tile().partial_floats;
  undivided_floats_ = std::max(wanted - kMostPartialFloats, int64_t{0});
}

int64_t AttentionTiles::work() const {
  return (tile_.token_end - tile_.token_begin) * heads_ * (tile_.last_segment - tile_.first_segment);
}

// Head by head, so that a head's keys and values stay in cache; the last tile, which sees most, first.
bool AttentionTiles::advance() {
  if (tile_index_ == 0) {
    if (++tile_.kv_head >= stage_.num_kv_heads) {
      tile_.kv_head = 0;
      if (++tile_.run >= static_cast<int64_t>(runs_.size())) return false;
    }
    tile_index_ = divide_up(runs_[static_cast<size_t>(tile_.run)].num_tokens, tile_tokens_);
  }
  --tile_index_;
  return true;
}

bool AttentionTiles::next() {
  if (tile_.pieces > 1) {
    tile_.partial_offset += tile_.partial_floats;
    ++tile_.split_index;
  }
  if (!advance()) return false;
  tile_.token_begin = tile_index_ * tile_tokens_;
  const int64_t num_tokens = runs_[static_cast<size_t>(tile_.run)].num_tokens;
  tile_.token_end = std::min(tile_.token_begin + tile_tokens_, num_tokens);
  see_segments();
  divide();
  return true;
}

void AttentionTiles::see_segments() {
  const int64_t first = runs_[static_cast<size_t>(tile_.run)].first_position;
  const int64_t begin = first + tile_.token_begin + 1 - stage_.window;  // of the first token's view
  tile_.first_segment = stage_.window > 0 && begin > 0 ? begin / kSegmentTokens : 0;
  tile_.last_segment = divide_up(first + tile_.token_end, kSegmentTokens);
}

void AttentionTiles::divide() {
  const int64_t segments = tile_.last_segment - tile_.first_segment;
  tile_.pieces = share_ == 0 ? 1 : std::min(divide_up(work(), share_), segments);
  const int64_t rows = (tile_.token_end - tile_.token_begin) * heads_;
  tile_.partial_floats = tile_.pieces == 1 ? 0 : rows * segments * partial_floats(stage_.value_dim);
  if (tile_.pieces == 1 || undivided_floats_ <= 0) return;
  undivided_floats_ -= tile_.partial_floats;
  tile_.pieces = 1;
  tile_.partial_floats = 0;
}

// Tiles are divided that have more than a share of the work; there are fewer of them than shares.
int64_t most_partial_floats(const Plan& plan, int64_t context_length, int num_threads) {
  if (num_threads == 1) return 0;
  const int64_t segments = divide_up(context_length, kSegmentTokens);
  int64_t most = 0;
  for (const Stage& stage : plan.stages) {
    const auto* attention = std::get_if<AttentionStage>(&stage);
    if (attention == nullptr) continue;
    const int64_t rows = std::max<int64_t>(kMaxAttentionRows, attention->num_heads / attention->num_kv_heads);
    most = std::max(most, rows * segments * partial_floats(attention->value_dim));
  }
  return std::min(most * kTasksPerThread * num_threads, kMostPartialFloats);
}

AttentionNeeds attention_needs(const Plan& plan, std::span<const std::vector<QueryRun>, kNumQueryRuns> runs,
                               int num_threads) {
  AttentionNeeds needs;
  if (num_threads == 1) return needs;
  const AttentionStage* last = nullptr;
  for (const Stage& stage : plan.stages) {
    const auto* attention = std::get_if<AttentionStage>(&stage);
    if (attention == nullptr || (last != nullptr && attention->has_shape_of(*last))) continue;
    last = attention;
    AttentionTiles tiles(*attention, runs[attention->runs()], num_threads);
    while (tiles.next()) {
      const AttentionTile& tile = tiles.tile();
      if (tile.pieces == 1) continue;
      needs.partial_floats = std::max(needs.partial_floats, tile.partial_offset + tile.partial_floats);
      needs.split_tiles = std::max(needs.split_tiles, tile.split_index + 1);
    }
  }
  return needs;
}

}  // namespace puna
