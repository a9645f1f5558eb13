// A model's graph as the CPU runs it: stages, one after the other, each shared out over all threads of the
// step with a barrier behind it. A token stage is a run of ops of which every row needs only itself, so one
// thread takes a token, or some columns of it, through all of them without waiting (norm and quantization,
// rotation and cache write, ...). Where such a stage has a single row that is cheaper computed than waited
// for, every thread computes it for itself, and there is no barrier (replication.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/adapters/adapter.h"
#include "executor/batch.h"
#include "executor/prediction.h"
#include "executor/stages.h"
#include "executor/threads/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kernels/kernels.h"

namespace puna {

// How a layer's keys were turned by their positions.
struct KeyRotation {
  decltype(Kernels::rope_normal) rotate;
  int64_t num_heads, head_dim, begin, rotary_dim;  // begin: the first dimension of a head that was turned
  const float* inv_freq;                           // one of the plan's constants
};

// Layers that see equally many tokens: they keep the keys and values of the same ones, and share blocks. Or
// all recurrent layers: a block is their state behind some number of tokens.
struct KvGroup {
  int64_t window;  // how many of the latest tokens a token sees, itself included; 0: all
  int num_layers = 0;
  int64_t block_bytes = 0;  // of all its layers
  bool is_state = false;
};

// A layer's keys and values.
struct KvLayer {
  int num_kv_heads, head_dim;
  bool is_latent;  // its values are columns of its keys
  int64_t window;  // as in its group
  KvLayout layout;
  std::optional<KeyRotation> rotation;  // none: keys do not depend on positions
  int group = 0;
  int64_t k_offset = 0, v_offset = 0;  // in a block of the group, in bytes
};

// Everything that build() found out; does not change afterwards.
struct Plan {
  std::shared_ptr<GgufFile> file;     // weights point into its mapping
  std::shared_ptr<GgufFile> drafter;  // likewise, of a head that has a file of its own
  const Kernels* kernels;
  std::vector<std::unique_ptr<float[]>> constants;  // norm weights, biases, frequencies
  std::vector<Buffer> buffers;
  std::vector<Stage> stages;
  KvType kv_type = KvType::kF16;
  std::vector<KvGroup> groups;  // the one without a window first, then the widest window, states last
  std::vector<KvLayer> layers;  // with attention
  bool can_shift = true;        // every layer's keys are as its rotation left them
  int64_t chunk = 0;       // tokens, a multiple of a block's: those of a chunk see no others; 0: no layer has
  int64_t vocab_size = 0;  // rows of the smallest embedding; 0 without one
  std::array<int64_t, kNumDomains> row_bytes{};  // of all buffers of a domain together
  std::vector<AdapterSite> sites;
  int64_t kept_row_bytes = 0;  // inputs of all recurrence stages for one token
  int result = -1;
  int hidden = kNoBuffer;   // what the result is made of, if that can be asked for
  bool is_encoder = false;  // texts are in a step as a whole
  bool uses_tiles = false;  // in some products
  std::optional<PredictionPlan> prediction = {};

  // Throws Error if a file turns out to have been cut short.
  void check_files() const {
    file->check_whole();
    if (drafter) drafter->check_whole();
  }
  size_t num_model_stages() const { return prediction ? prediction->begin : stages.size(); }
  int64_t replica_bytes() const { return std::accumulate(row_bytes.begin(), row_bytes.end(), int64_t{0}); }
};

// The place of a token's keys and values.
struct KvSlot {
  uint8_t* block;
  int slot;
};

struct AdaptedRows;
struct AdapterFloats;
struct QueryRun;
struct SequenceState;
struct SharedWork;
class ExpertPaging;
struct Step;
class StepControl;
struct KvMove;

// Rows of floats that stay as they are until the next run.
struct Output {
  std::shared_ptr<float[]> data;
  int64_t rows, width;
};

struct Outputs {
  Output result;  // of Batch::rows
  Output hidden;  // of these and Batch::hidden
};

class Program {
 public:
  explicit Program(Plan plan);
  ~Program();

  const char* isa() const { return plan_.kernels->isa; }
  const std::vector<KvGroup>& groups() const { return plan_.groups; }
  // Memory of the activations. It grows to what the largest step needed and stays there: the scheduler bounds
  // the tokens of a step.
  int64_t buffer_bytes();
  // The most that attention ever needs beside activations and KV, and drafts usually do.
  int64_t most_scratch_bytes(int64_t context_length, int num_threads) const;
  // Activations of a step of whole texts, and what loaded adapters need beside them.
  int64_t text_bytes(int64_t num_tokens, int64_t num_texts, int num_threads);
  // Gives back the activations, and lets the system have the weights' pages. Both return with the next run.
  void release_memory();

  // Checks an adapter's file against the model. It may be used as long as the program. Throws Error.
  std::shared_ptr<Adapter> load_adapter(std::shared_ptr<GgufFile> file, float alpha);

  // One step, on at most `num_threads` of the pool's threads. Throws Error, before anything is written, if
  // the batch does not fit the model or its memory; and if the model's file turns out to have been cut short,
  // in this step or before.
  // Nothing: it was suspended, as `control` wants of an encoder's; `goes_on`, with the same arguments, goes
  // on with it, and whatever else the program is asked for gives it up.
  std::optional<Outputs> run(ThreadPool& pool, const Batch& batch, int num_threads,
                             StepControl* control = nullptr, bool goes_on = false);

  // For a model with states, behind a run with drafts: those that turned out right change the states that it
  // wrote. sample_starts[n + 1]: of the n sequences that had rows, the i-th got the samples [starts[i],
  // starts[i + 1]), of which all but the last are its drafts. Throws Error, before anything is written, if
  // this or the memory is not that of the last run.
  void replay(ThreadPool& pool, const BlockSpace& states, std::span<const int32_t> sample_starts);

  // Behind a run: keeps what the prediction head has of the tokens of those sequences that have a state
  // (others: nullptr), drafts that turned out wrong left out. The run had the hidden states of all of these
  // tokens computed, `hidden` is what it gave. sample_starts as for replay().
  void keep(ThreadPool& pool, const Batch& batch, int num_threads, std::span<HeadState* const> states,
            std::span<const float> hidden, std::span<const int32_t> sample_starts);
  // The tokens of sequences with a head state (others: nullptr) that have no row and whose hidden states the
  // head needs: Batch::hidden has to name them.
  std::vector<int32_t> tokens_for_head(const Batch& batch, std::span<HeadState* const> states) const;
  // Drafts of each sequence; fewer where the head gives no numbers. What it keeps of the latest token and of
  // the drafts is written.
  std::vector<std::vector<int32_t>> predict(ThreadPool& pool, const Batch& batch, int num_threads,
                                            const WantedDrafts& wanted);

  // Whether keys can be turned to another position.
  bool can_shift() const { return plan_.can_shift; }
  // Copies keys and values of a group's layers, token by token in ascending order; keys are turned by as many
  // positions as they move, and without that not a bit changes. Throws Error, before anything is written, if
  // something is out of range, if a token would be overwritten before it is moved, or if keys would have to
  // be turned and cannot.
  void move_kv(ThreadPool& pool, const KvMove& move) const;

 private:
  // Activations of one domain.
  struct Memory {
    std::shared_ptr<uint8_t[]> bytes;  // shared with outputs that are still looked at
    int64_t size = 0;
  };
  struct Suspended {
    size_t stage;  // to go on with
    int num_threads;
    size_t num_tokens, num_hidden;

    bool is_of(const Batch& batch, int threads) const {
      return threads == num_threads && batch.tokens.size() == num_tokens && batch.hidden.size() == num_hidden;
    }
  };
  static void reserve(Memory& memory, int64_t row_bytes, int64_t rows);
  void prepare(ThreadPool& pool, const Batch& batch, int num_threads);
  // Stages [begin, end).
  Step execute(ThreadPool& pool, const Batch& batch, int num_threads, size_t begin, size_t end,
               StepControl* control, bool goes_on = false);
  void prepare_adapters(ThreadPool& pool, const Batch& batch, int num_threads);
  AdapterFloats adapter_floats(const Adapter& adapter, int64_t num_tokens) const;
  int64_t most_expert_results(const std::array<int64_t, kNumDomains>& rows) const;
  // The likeliest token of each row, -1 where the head gives no numbers; hidden: gets what it made of each.
  std::vector<int32_t> predict_next(ThreadPool& pool, const Batch& batch, int num_threads,
                                    std::vector<float>& hidden);
  // Returns the stage to go on with; `end`: none.
  size_t run_stages(const Step& step, size_t begin, size_t end) const noexcept;
  Output output(const Step& step, int buffer, int64_t rows) const;

  const Plan plan_;
  std::mutex one_run_;
  // Kept from step to step, so that a step allocates nothing unless it is the largest so far.
  std::array<Memory, kNumDomains> memory_;
  Memory replicas_;                    // one row of every domain for each thread
  Memory attention_partials_;          // sums over segments of contexts that several threads share
  Memory encoder_scratch_;             // of each thread
  Memory tile_scratch_;                // of each thread
  Memory expert_results_;              // of each thread
  Memory kept_inputs_;                 // of drafts, for recurrence stages
  Memory adapter_sums_, adapter_low_;  // of one linear stage
  std::vector<AdaptedRows> adapted_;
  std::vector<std::weak_ptr<Adapter>> adapters_;
  std::vector<KvSlot> kv_slots_;  // [groups][T]
  std::array<std::vector<QueryRun>, kNumQueryRuns> query_runs_;
  std::vector<SequenceState> states_;
  std::unique_ptr<SharedWork> work_;
  std::optional<Suspended> suspended_;
  std::unique_ptr<ExpertPaging> paging_;
};

}  // namespace puna
