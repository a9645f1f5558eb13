// The tasks that an attention stage falls into: a tile of query tokens of one sequence, one KV head, and,
// where a context is long beside everything else in the step, one run of its segments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/program/program.h"

namespace puna {

// Most floats of sums over segments in one stage: 64 MiB. They grow with context, threads and tiles, and
// where there are more, the tiles that come first are not divided: then the later ones are what evens out.
inline constexpr int64_t kMostPartialFloats = int64_t{16} << 20;

// Neighbouring rows of a domain that are neighbouring tokens of one sequence; of one chunk, where positions
// are counted from its beginning.
struct QueryRun {
  int64_t sequence, first_row, num_tokens;
  int64_t first_position;  // of its tokens
  int64_t first_block;     // of the sequence's, at position 0
};

// chunk: how many tokens chunks have; 0: there are none.
std::vector<QueryRun> query_runs(const Batch& batch, Domain domain, int64_t chunk);

// A tile of query tokens under one KV head.
struct AttentionTile {
  int64_t run = 0;  // whose tokens they are
  int64_t kv_head = 0;
  int64_t token_begin = 0, token_end = 0;       // of the run's
  int64_t first_segment = 0, last_segment = 0;  // that the tokens see
  int64_t pieces = 1;                           // tasks that the segments are shared out over
  // Of tiles in several pieces: memory for the sums of its segments, how much of it those before take, and
  // how many they are.
  int64_t partial_floats = 0;
  int64_t partial_offset = 0;
  int64_t split_index = 0;

  int64_t first_segment_of(int64_t piece) const {
    return first_segment + (last_segment - first_segment) * piece / pieces;
  }
};

// Goes through all tiles of a stage, in the same order in every thread. What a token's output is does not
// depend on how it is divided; see kSegmentTokens.
class AttentionTiles {
 public:
  AttentionTiles(const AttentionStage& stage, std::span<const QueryRun> runs, int num_threads);

  // False behind the last one.
  bool next();
  const AttentionTile& tile() const { return tile_; }

 private:
  bool advance();
  int64_t work() const;  // of the tile
  void see_segments();
  void divide();
  void hold_back(int64_t total_work);

  const AttentionStage& stage_;
  const std::span<const QueryRun> runs_;
  const int64_t heads_;           // query heads of a KV head
  const int64_t tile_tokens_;     // query tokens of a tile
  int64_t share_ = 0;             // work that one task should not exceed by much
  int64_t undivided_floats_ = 0;  // sums that tiles still to come must do without
  int64_t tile_index_ = 0;        // tiles of this run and head that are still to come
  AttentionTile tile_;
};

// Memory that the stages of a step need beside the activations.
struct AttentionNeeds {
  int64_t partial_floats = 0;
  int64_t split_tiles = 0;
};

// The most partial_floats that a step can need in which no context is longer, whatever its batch.
int64_t most_partial_floats(const Plan& plan, int64_t context_length, int num_threads);

// runs: of each domain.
AttentionNeeds attention_needs(const Plan& plan, std::span<const std::vector<QueryRun>, kNumQueryRuns> runs,
                               int num_threads);

}  // namespace puna
