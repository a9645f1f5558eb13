// The stages of a model's graph as the CPU runs it, and the buffers between them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "executor/batch.h"
#include "executor/experts/expert_layer.h"
#include "kernels/kernels.h"

namespace puna {

// The rows of a buffer: all tokens of a step; those whose hidden state is wanted, or what follows them; of
// these, those whose logits are wanted.
enum class Domain : uint8_t { kTokens, kRows, kSampled };
inline constexpr size_t kNumDomains = 3;

inline int64_t num_rows(const Batch& batch, Domain domain) {
  if (domain == Domain::kTokens) return static_cast<int64_t>(batch.tokens.size());
  return static_cast<int64_t>(batch.rows.size() + (domain == Domain::kRows ? batch.hidden.size() : 0));
}

inline std::array<int64_t, kNumDomains> num_rows(const Batch& batch) {
  return {num_rows(batch, Domain::kTokens), num_rows(batch, Domain::kRows),
          num_rows(batch, Domain::kSampled)};
}

// The token that a row of the domain is of.
inline int32_t token_of(const Batch& batch, Domain domain, int64_t row) {
  const auto at = static_cast<size_t>(row);
  if (domain == Domain::kTokens) return static_cast<int32_t>(row);
  return at < batch.rows.size() ? batch.rows[at] : batch.hidden[at - batch.rows.size()];
}

struct Buffer {
  int64_t row_bytes;
  int64_t width = 0;  // floats per row; 0 for a private layout (quantized activations, rotation tables)
  std::optional<Domain> domain = {};  // set by the first write

  // The stages that write or read it; beyond them its memory serves others.
  int first_stage = -1;
  int last_stage = -1;
  int last_writer = -1;  // the last stage that writes it
  // The buffer starts at offset * (rows of the domain) in the domain's memory; a multiple of 64.
  int64_t offset = 0;
  // With one row, every thread has a copy of its own, which the replicated stages write.
  bool replicated = false;
};

inline constexpr int kNoBuffer = -1;

struct RowRun;

// An op of which every row needs only itself.
struct TokenOp {
  std::vector<int> inputs;
  int out;         // kNoBuffer: it writes to the KV cache
  int64_t pieces;  // into how many runs of columns, equally wide, a row can be cut: each needs no other's
  std::function<void(const RowRun&)> run;
};

struct TokenStage {
  Domain domain;
  std::vector<TokenOp> ops;
  int64_t pieces = 1;  // into how many all of the ops can be cut
  bool replicated = false;
};

struct LinearPart {
  Weight weight;
  const float* bias;  // nullptr: none
  int x, out;
  int residual;             // or kNoBuffer
  int floats = kNoBuffer;   // x as it was before it was quantized
  bool uses_tiles = false;  // of the processor's matrix unit
  int site = -1;            // of the plan's, where adapters may change the weight
  int64_t x_offset = 0;     // of the columns it reads of x, in bytes
  int64_t out_offset = 0;   // of those that it writes
};

// Several weights over the same input rows: one list of work.
struct LinearStage {
  Domain domain;
  std::vector<LinearPart> parts;
  size_t next = 0;  // index of the linear stage that is run after it, or first in the next step
};

// What adapters compute ahead of a linear stage; left out in steps without them.
struct AdapterStage {
  size_t linear;  // index of that stage
};

inline constexpr size_t kNumQueryRuns = 2 * kNumDomains;  // whole, and cut where chunks begin

// layer: of the plan's, whose keys and values are attended to.
struct AttentionStage {
  Domain domain;
  int layer, num_heads, num_kv_heads, head_dim, value_dim;
  float scale, softcap;
  int64_t window;
  const float* sinks;  // [num_heads], or nullptr
  float alibi;         // 0: none
  int q, out;
  bool is_chunked = false;  // a token sees those of its own chunk: see Plan::chunk

  // Of Step::query_runs.
  size_t runs() const { return static_cast<size_t>(domain) + (is_chunked ? kNumDomains : 0); }

  // Whether the work falls into the same tasks.
  bool has_shape_of(const AttentionStage& other) const {
    return runs() == other.runs() && num_heads == other.num_heads && num_kv_heads == other.num_kv_heads &&
           head_dim == other.head_dim && value_dim == other.value_dim && window == other.window;
  }
};

// Every token of a text sees the others.
struct EncoderAttentionStage {
  int num_heads, num_kv_heads, head_dim;
  float scale;
  int64_t window;  // tokens on either side; -1: all
  // What a head's scores gain by distance, in base 2: [heads][2 * kMostDistance + 1], or a slope of each head
  // times the distance; nullptr for none.
  const float *by_distance, *slopes;
  int q, k, v, out;
};

// Tokens further away are as those at this distance.
inline constexpr int64_t kMostDistance = 128;

enum class ExpertPhase { kOrderVisits, kGateUp, kDown };

struct ExpertStage {
  Domain domain;
  ExpertPhase phase;
  std::shared_ptr<const ExpertLayer> layer;
  size_t next = 0;  // index of the linear stage that is run after it, or first in the next step
};

struct RecurrenceRun;

// Tokens that change a state of fixed size, one after the other. Its parts need nothing of each other.
struct RecurrenceStage {
  std::vector<int> inputs;
  int out;
  int64_t parts;
  int64_t state_offset;     // of the layer's state in a block, in bytes
  int64_t kept_offset = 0;  // of the inputs of a draft, where they are kept
  std::function<void(const RecurrenceRun&)> run;
};

using Stage = std::variant<TokenStage, LinearStage, AdapterStage, AttentionStage, EncoderAttentionStage,
                           ExpertStage, RecurrenceStage>;

}  // namespace puna
