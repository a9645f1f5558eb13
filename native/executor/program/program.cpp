#include "executor/program/program.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "base/error.h"
#include "executor/adapters/adapted_rows.h"
#include "executor/attention/attention_tasks.h"
#include "executor/attention/encoder_tasks.h"
#include "executor/experts/expert_paging.h"
#include "executor/experts/expert_step.h"
#include "executor/move_kv.h"
#include "executor/recurrence.h"
#include "executor/step.h"
#include "executor/threads/shared_work.h"
#include "matrix_units/tile_linear.h"

namespace puna {

namespace {

void find_kv_slots(const Batch& batch, std::span<const KvGroup> groups, std::vector<KvSlot>& slots) {
  slots.clear();
  for (size_t g = 0; g < batch.kv.size() && !groups[g].is_state; ++g) {
    const BlockTables& tables = batch.kv[g];
    for (int64_t s = 0; s < batch.num_sequences(); ++s) {
      for (int32_t t = batch.sequence_starts[s]; t < batch.sequence_starts[s + 1]; ++t) {
        const int32_t position = batch.positions[t];
        slots.push_back({tables.blocks[tables.of(s)[position / kBlockTokens]], position % kBlockTokens});
      }
    }
  }
}

}  // namespace

Program::Program(Plan plan) : plan_(std::move(plan)), paging_(std::make_unique<ExpertPaging>()) {}
Program::~Program() = default;

int64_t Program::buffer_bytes() {
  const std::lock_guard<std::mutex> lock(one_run_);
  int64_t total = replicas_.size + attention_partials_.size + encoder_scratch_.size + tile_scratch_.size +
                  expert_results_.size + kept_inputs_.size + adapter_sums_.size + adapter_low_.size;
  for (const Memory& memory : memory_) total += memory.size;
  return total;
}

int64_t Program::most_scratch_bytes(int64_t context_length, int num_threads) const {
  constexpr int64_t kDrafts = 64;  // no step of the engine has more: see speculation/drafting.py
  return (most_partial_floats(plan_, context_length, num_threads) +
          num_threads * encoder_scratch(plan_, context_length)) *
             static_cast<int64_t>(sizeof(float)) +
         (plan_.uses_tiles ? num_threads * kTileScratchBytes : 0) + kDrafts * plan_.kept_row_bytes;
}

void Program::release_memory() {
  const std::lock_guard<std::mutex> lock(one_run_);
  memory_ = {};
  replicas_ = attention_partials_ = encoder_scratch_ = tile_scratch_ = expert_results_ = kept_inputs_ =
      adapter_sums_ = adapter_low_ = {};
  states_.clear();
  suspended_.reset();
  for (const std::weak_ptr<Adapter>& known : adapters_)
    if (const std::shared_ptr<Adapter> adapter = known.lock()) adapter->release();
  plan_.file->release_pages();
  if (plan_.drafter) plan_.drafter->release_pages();
}

void Program::reserve(Memory& memory, int64_t row_bytes, int64_t rows) {
  constexpr std::align_val_t kAlignment{64};
  if (row_bytes == 0 || rows <= memory.size / row_bytes) return;
  if (rows > std::numeric_limits<int64_t>::max() / row_bytes) throw Error("the step has too many tokens");
  const int64_t size = row_bytes * rows;
  memory = {};  // first, so that old and new need not both fit
  try {
    memory.bytes = {static_cast<uint8_t*>(::operator new(static_cast<size_t>(size), kAlignment)),
                    [](uint8_t* p) { ::operator delete(p, kAlignment); }};
  } catch (const std::bad_alloc&) {
    throw Error("no memory for the " + std::to_string(size) + " bytes of activations of the step");
  }
  memory.size = size;
}

int64_t Program::text_bytes(int64_t num_tokens, int64_t num_texts, int num_threads) {
  const std::array<int64_t, kNumDomains> rows = {num_tokens, num_texts, 0};
  const std::lock_guard<std::mutex> lock(one_run_);
  AdapterFloats adapters{};
  for (const std::weak_ptr<Adapter>& known : adapters_) {
    const std::shared_ptr<Adapter> adapter = known.lock();
    if (!adapter) continue;
    const AdapterFloats floats = adapter_floats(*adapter, num_tokens);
    adapters = {std::max(adapters.sums, floats.sums), std::max(adapters.low, floats.low)};
  }
  const int64_t of_thread = most_expert_results(rows) + adapters.low;
  const auto float_bytes = static_cast<int64_t>(sizeof(float));
  return std::inner_product(rows.begin(), rows.end(), plan_.row_bytes.begin(), int64_t{0}) +
         num_threads * (plan_.replica_bytes() + of_thread * float_bytes) + adapters.sums * float_bytes;
}

// Floats of one thread.
int64_t Program::most_expert_results(const std::array<int64_t, kNumDomains>& rows) const {
  int64_t most = 0;
  for (const Stage& stage : plan_.stages) {
    const auto* experts = std::get_if<ExpertStage>(&stage);
    if (experts == nullptr) continue;
    const int64_t visits = rows[static_cast<size_t>(experts->domain)] * experts->layer->num_used;
    if (visits > 0) most = std::max(most, visits * down_rows(visits));
  }
  return most;
}

std::shared_ptr<Adapter> Program::load_adapter(std::shared_ptr<GgufFile> file, float alpha) {
  constexpr int64_t kChunk = 256;  // tokens of a prompt in one step of the engine, if they are many
  auto adapter = std::make_shared<Adapter>(std::move(file), plan_.sites, *plan_.file, alpha);
  const AdapterFloats most = adapter_floats(*adapter, kChunk);
  adapter->count_scratch((most.sums + most.low) * static_cast<int64_t>(sizeof(float)));
  const std::lock_guard<std::mutex> lock(one_run_);
  std::erase_if(adapters_, [](const std::weak_ptr<Adapter>& known) { return known.expired(); });
  adapters_.push_back(adapter);
  return adapter;
}

// Of a step with so many tokens of the adapter's.
AdapterFloats Program::adapter_floats(const Adapter& adapter, int64_t num_tokens) const {
  AdaptedRows group{&adapter, {}};
  for (std::vector<int32_t>& rows : group.rows) rows.resize(static_cast<size_t>(num_tokens));
  return most_adapter_floats(plan_, {&group, 1});
}

void Program::prepare_adapters(ThreadPool& pool, const Batch& batch, int num_threads) {
  adapted_ = adapted_rows(batch);
  for (const AdaptedRows& group : adapted_) {
    const auto is_its = [&](const std::weak_ptr<Adapter>& known) {
      return known.lock().get() == group.adapter;
    };
    const auto found = std::find_if(adapters_.begin(), adapters_.end(), is_its);
    if (found == adapters_.end()) throw Error("the adapter is not one of this model's");
    found->lock()->prepare(pool);
  }
  const AdapterFloats most = most_adapter_floats(plan_, adapted_);
  reserve(adapter_sums_, sizeof(float), most.sums);
  reserve(adapter_low_, static_cast<int64_t>(sizeof(float)) * num_threads, most.low);
}

void Program::prepare(ThreadPool& pool, const Batch& batch, int num_threads) {
  prepare_adapters(pool, batch, num_threads);
  for (size_t d = 0; d < kNumDomains; ++d)
    reserve(memory_[d], plan_.row_bytes[d], num_rows(batch, static_cast<Domain>(d)));
  reserve(replicas_, plan_.replica_bytes(), num_threads);
  find_kv_slots(batch, plan_.groups, kv_slots_);
  for (const Domain domain : {Domain::kTokens, Domain::kRows}) {
    const auto index = static_cast<size_t>(domain);
    query_runs_[index] = query_runs(batch, domain, 0);
    if (plan_.chunk > 0) query_runs_[kNumDomains + index] = query_runs(batch, domain, plan_.chunk);
  }
  states_.clear();
  if (batch.kv.size() == plan_.groups.size() && plan_.kept_row_bytes > 0) find_states(batch, states_);
  reserve(kept_inputs_, plan_.kept_row_bytes, num_drafts(states_));
  if (!work_ || work_->num_threads != num_threads) work_ = std::make_unique<SharedWork>(num_threads);
  const AttentionNeeds needs = attention_needs(plan_, query_runs_, num_threads);
  reserve(attention_partials_, sizeof(float), needs.partial_floats);
  if (plan_.uses_tiles) reserve(tile_scratch_, kTileScratchBytes, num_threads);
  reserve(encoder_scratch_, static_cast<int64_t>(sizeof(float)) * num_threads,
          encoder_scratch(plan_, longest_sequence(batch)));
  reserve(expert_results_, static_cast<int64_t>(sizeof(float)) * num_threads,
          most_expert_results(num_rows(batch)));
  if (static_cast<int64_t>(work_->attention_arrivals.size()) < needs.split_tiles)
    work_->attention_arrivals = std::vector<std::atomic<int32_t>>(static_cast<size_t>(needs.split_tiles));
}

size_t Program::run_stages(const Step& step, size_t begin, size_t end) const noexcept {
  for (size_t i = begin; i < end; ++i) {
    const Stage& stage = plan_.stages[i];
    if (const auto* tokens = std::get_if<TokenStage>(&stage)) {
      run_stage(step, *tokens);
      if (is_replicated(step, *tokens)) continue;
    } else if (const auto* linear = std::get_if<LinearStage>(&stage)) {
      run_stage(step, *linear, work_->shares);
    } else if (const auto* adapters = std::get_if<AdapterStage>(&stage)) {
      if (step.adapted.empty()) continue;
      run_stage(step, *adapters, work_->shares);
    } else if (const auto* experts = std::get_if<ExpertStage>(&stage)) {
      run_stage(step, *experts, work_->shares);
    } else if (const auto* recurrence = std::get_if<RecurrenceStage>(&stage)) {
      run_stage(step, *recurrence, work_->shares);
    } else if (const auto* encoder = std::get_if<EncoderAttentionStage>(&stage)) {
      run_stage(step, *encoder, work_->claimed);
    } else {
      run_stage(step, std::get<AttentionStage>(stage), work_->claimed);
    }
    step.activity.finish_task(step.thread);
    work_->wait(step.activity);
    if (work_->ends_here()) return i + !work_->is_in_midst();
  }
  return end;
}

void Program::move_kv(ThreadPool& pool, const KvMove& move) const { puna::move_kv(plan_, pool, move); }

std::optional<Outputs> Program::run(ThreadPool& pool, const Batch& batch, int num_threads,
                                    StepControl* control, bool goes_on) {
  check_batch(batch, plan_.vocab_size, plan_.groups);
  if (plan_.is_encoder) check_texts(batch);
  if (!batch.hidden.empty() && plan_.hidden == kNoBuffer) throw Error("the model gives no hidden states");
  const std::lock_guard<std::mutex> lock(one_run_);
  const std::optional<Suspended> before = std::exchange(suspended_, std::nullopt);
  if (goes_on && (!before || !before->is_of(batch, std::clamp(num_threads, 1, pool.num_threads()))))
    throw Error("no such step was suspended");
  const size_t begin = goes_on ? before->stage : 0;
  const Step step = execute(pool, batch, num_threads, begin, plan_.num_model_stages(), control, goes_on);
  if (suspended_) return std::nullopt;
  const auto num_results = static_cast<int64_t>(batch.rows.size());
  return Outputs{.result = output(step, plan_.result, num_results),
                 .hidden = output(step, plan_.hidden, step.num_rows(Domain::kRows))};
}

Step Program::execute(ThreadPool& pool, const Batch& batch, int num_threads, size_t begin, size_t end,
                      StepControl* control, bool goes_on) {
  plan_.check_files();
  const int threads = std::clamp(num_threads, 1, pool.num_threads());
  prepare(pool, batch, threads);
  const int64_t expert_results = most_expert_results(num_rows(batch));
  const int64_t adapter_low = most_adapter_floats(plan_, adapted_).low;
  const int64_t scratch = encoder_scratch(plan_, longest_sequence(batch));
  work_->begin(control, plan_.is_encoder, goes_on);
  Step shared{
      .plan = plan_,
      .batch = batch,
      .thread = 0,
      .num_threads = threads,
      .memory = {memory_[0].bytes.get(), memory_[1].bytes.get(), memory_[2].bytes.get()},
      .replicas = replicas_.bytes.get(),
      .kv_slots = kv_slots_,
      .query_runs = query_runs_,
      .states = states_,
      .kept_inputs = kept_inputs_.bytes.get(),
      .adapted = adapted_,
      .adapter_sums = reinterpret_cast<float*>(adapter_sums_.bytes.get()),
      .adapter_low = reinterpret_cast<float*>(adapter_low_.bytes.get()),
      .attention_partials = reinterpret_cast<float*>(attention_partials_.bytes.get()),
      .attention_arrivals = work_->attention_arrivals.data(),
      .encoder_scratch = reinterpret_cast<float*>(encoder_scratch_.bytes.get()),
      .tile_scratch = tile_scratch_.bytes.get(),
      .expert_results = reinterpret_cast<float*>(expert_results_.bytes.get()),
      .reads_experts_ahead = paging_->is_on(),
      .activity = pool.activity(),
      .control = control,
      .has_rest = work_->has_rest,
  };
  size_t next = begin;
  const auto body = [&](int thread) {
    Step step = shared;
    step.thread = thread;
    step.encoder_scratch += scratch * thread;
    if (plan_.uses_tiles) step.tile_scratch += kTileScratchBytes * thread;
    step.expert_results += expert_results * thread;
    step.adapter_low += adapter_low * thread;
    step.replicas += plan_.replica_bytes() * thread;
    const size_t reached = run_stages(step, begin, end);
    if (thread == 0) next = reached;
  };
  paging_->begin_step();
  pool.run(threads, [&body](int thread) { body(thread); });  // small enough for std::function not to allocate
  paging_->end_step(plan_);
  plan_.check_files();
  for (const AdaptedRows& group : adapted_) group.adapter->check_whole();
  if (work_->is_cut) {
    states_.clear();  // they are lost
    throw Error("the step was stopped");
  }
  if (next < end) suspended_ = {next, threads, batch.tokens.size(), batch.hidden.size()};
  return shared;
}

Output Program::output(const Step& step, int buffer, int64_t rows) const {
  if (buffer == kNoBuffer) return {nullptr, 0, 0};
  const Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
  const bool is_replica = b.replicated && step.num_rows(*b.domain) == 1;  // the first thread's
  const Memory& memory = is_replica ? replicas_ : memory_[static_cast<size_t>(*b.domain)];
  return {std::shared_ptr<float[]>(memory.bytes, step.floats(buffer, 0)), rows, b.width};
}

void Program::replay(ThreadPool& pool, const BlockSpace& states, std::span<const int32_t> sample_starts) {
  const std::lock_guard<std::mutex> lock(one_run_);
  struct Accepted {
    const SequenceState* sequence;
    int64_t num_tokens;
  };
  std::vector<Accepted> accepted;
  for (const SequenceState& sequence : states_) {
    if (sequence.drafts.count == 0) continue;
    const auto sampler = static_cast<size_t>(sequence.drafts.sampler);
    if (sampler + 1 >= sample_starts.size()) throw Error("there are fewer samples than drafts");
    const int64_t samples = int64_t{sample_starts[sampler + 1]} - sample_starts[sampler];
    if (samples > sequence.drafts.count + 1) throw Error("there are more samples than drafts");
    if (sequence.block >= states.num_blocks() || states[sequence.block] != sequence.after)
      throw Error("the memory is not that of the last run");
    if (samples > 1) accepted.push_back({&sequence, samples - 1});
  }
  if (accepted.empty()) return;
  std::vector<const RecurrenceStage*> stages;
  for (const Stage& stage : plan_.stages)
    if (const auto* recurrence = std::get_if<RecurrenceStage>(&stage)) stages.push_back(recurrence);
  pool.parallel_for(static_cast<int64_t>(stages.size() * accepted.size()), [&](int64_t i) {
    const auto [sequence, num_tokens] = accepted[static_cast<size_t>(i) / stages.size()];
    const uint8_t* kept = kept_inputs_.bytes.get() + sequence->first_kept * plan_.kept_row_bytes;
    puna::replay(plan_, *stages[static_cast<size_t>(i) % stages.size()], kept, num_tokens, sequence->after);
  });
  states_.clear();
}

}  // namespace puna
