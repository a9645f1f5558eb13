#include "executor/adapters/adapted_rows.h"

#include <algorithm>

#include "executor/step.h"

namespace puna {
namespace {

// One pair of matrices at work: for the rows of an adapter, beside one part of a linear stage.
struct Work {
  const AdaptedRows& group;
  const std::vector<int32_t>& rows;
  const LinearPart& part;
  const LowRank& pair;
  int64_t first_sum;  // sums[row][segment][padded rank] begin here
  int64_t first_low;  // scale * A x, [row][rank], begins here in each thread's memory

  int64_t num_segments() const { return num_adapter_segments(pair.down.cols); }
  int64_t row_sums() const { return num_segments() * pair.padded_rank(); }
  int64_t num_rows() const { return static_cast<int64_t>(rows.size()); }
  AdapterFloats floats() const { return {row_sums() * num_rows(), pair.rank * num_rows()}; }
};

// body(work) for all of a stage, in one order.
template <typename Body>
void for_each_work(std::span<const AdaptedRows> adapted, const LinearStage& stage, const Body& body) {
  AdapterFloats first{};
  for (const AdaptedRows& group : adapted) {
    const std::vector<int32_t>& rows = group.rows[static_cast<size_t>(stage.domain)];
    if (rows.empty()) continue;
    for (const LinearPart& part : stage.parts) {
      const LowRank* pair = part.site < 0 ? nullptr : group.adapter->at(part.site);
      if (pair == nullptr) continue;
      const Work work{group, rows, part, *pair, first.sums, first.low};
      body(work);
      first.sums += work.floats().sums;
      first.low += work.floats().low;
    }
  }
}

int64_t width_of(const Step& step, int buffer) {
  return step.plan.buffers[static_cast<size_t>(buffer)].width;
}

// Of a segment of columns, for 16 of A's rows.
void run_unit(const Step& step, const Work& work, int64_t unit) {
  const int64_t segment = unit % work.num_segments(), row = unit / work.num_segments() * kRowTile;
  const int64_t col = segment * kAdapterSegment, rank = work.pair.padded_rank();
  step.plan.kernels->lane_linear({
      .weight = &work.pair.down,
      .row_begin = row,
      .row_end = std::min(row + kRowTile, work.pair.rank),
      .col_begin = col,
      .col_end = std::min(col + kAdapterSegment, work.pair.down.cols),
      .x = step.floats(work.part.floats, 0),
      .x_stride = width_of(step, work.part.floats),
      .x_rows = work.rows.data(),
      .num_tokens = work.num_rows(),
      .out = step.adapter_sums + work.first_sum + segment * rank + row,
      .out_stride = work.row_sums(),
      .out_rows = nullptr,
      .adds = false,
  });
}

void add_up(const Step& step, const Work& work) {
  const int64_t rank = work.pair.rank, stride = work.pair.padded_rank(), segments = work.num_segments();
  const float* sums = step.adapter_sums + work.first_sum;
  float* low = step.adapter_low + work.first_low;
  for (int64_t row = 0; row < work.num_rows(); ++row, sums += work.row_sums(), low += rank) {
    std::copy_n(sums, rank, low);
    for (int64_t s = 1; s < segments; ++s)
      for (int64_t k = 0; k < rank; ++k) low[k] += sums[s * stride + k];
    for (int64_t k = 0; k < rank; ++k) low[k] *= work.pair.scale;
  }
}

void add_rows(const Step& step, const Work& work, int64_t row_begin, int64_t row_end) {
  step.plan.kernels->lane_linear({
      .weight = &work.pair.up,
      .row_begin = row_begin,
      .row_end = row_end,
      .col_begin = 0,
      .col_end = work.pair.rank,
      .x = step.adapter_low + work.first_low,
      .x_stride = work.pair.rank,
      .x_rows = nullptr,
      .num_tokens = work.num_rows(),
      .out = step.floats(work.part.out, 0) + row_begin,
      .out_stride = width_of(step, work.part.out),
      .out_rows = work.rows.data(),
      .adds = true,
  });
}

AdaptedRows& group_of(std::vector<AdaptedRows>& groups, const Adapter* adapter) {
  const auto is_its = [&](const AdaptedRows& group) { return group.adapter == adapter; };
  const auto found = std::find_if(groups.begin(), groups.end(), is_its);
  return found != groups.end() ? *found : groups.emplace_back(AdaptedRows{adapter, {}});
}

}  // namespace

std::vector<AdaptedRows> adapted_rows(const Batch& batch) {
  std::vector<AdaptedRows> groups;
  if (batch.adapters.empty()) return groups;
  const auto add = [&](size_t token, Domain domain, size_t row) {
    if (const Adapter* adapter = batch.adapters[token])
      group_of(groups, adapter).rows[static_cast<size_t>(domain)].push_back(static_cast<int32_t>(row));
  };
  for (size_t t = 0; t < batch.tokens.size(); ++t) add(t, Domain::kTokens, t);
  const size_t num_sampled = batch.rows.size();
  for (size_t i = 0; i < num_sampled; ++i) {
    add(static_cast<size_t>(batch.rows[i]), Domain::kRows, i);
    add(static_cast<size_t>(batch.rows[i]), Domain::kSampled, i);
  }
  for (size_t i = 0; i < batch.hidden.size(); ++i)
    add(static_cast<size_t>(batch.hidden[i]), Domain::kRows, num_sampled + i);
  return groups;
}

AdapterFloats most_adapter_floats(const Plan& plan, std::span<const AdaptedRows> adapted) {
  AdapterFloats most{};
  if (adapted.empty()) return most;
  for (const Stage& stage : plan.stages) {
    const auto* linear = std::get_if<LinearStage>(&stage);
    if (linear == nullptr) continue;
    AdapterFloats floats{};
    for_each_work(adapted, *linear, [&](const Work& work) {
      floats.sums += work.floats().sums;
      floats.low += work.floats().low;
    });
    most = {std::max(most.sums, floats.sums), std::max(most.low, floats.low)};
  }
  return most;
}

void begin_adapters(const Step& step, const LinearStage& stage) {
  for_each_work(step.adapted, stage, [&](const Work& work) { add_up(step, work); });
}

void add_adapters(const Step& step, const LinearStage& stage, const LinearPart& part, int64_t row_begin,
                  int64_t row_end) {
  for_each_work(step.adapted, stage, [&](const Work& work) {
    if (&work.part == &part) add_rows(step, work, row_begin, row_end);
  });
}

void fetch_adapters(const Step& step, const LinearStage& stage, const LinearPart& part, int64_t row_begin,
                    int64_t row_end) {
  constexpr int64_t kLine = 64, kMostBytes = 1 << 14;
  for_each_work(step.adapted, stage, [&](const Work& work) {
    if (&work.part != &part) return;
    const LaneWeight& up = work.pair.up;
    const int64_t row_bytes = up.cols * (up.type == TensorType::kF32 ? 4 : 2);
    const uint8_t* begin = up.data + row_begin * row_bytes;
    const int64_t size = std::min((row_end - row_begin) * row_bytes, kMostBytes);
    for (int64_t i = 0; i < size; i += kLine) __builtin_prefetch(begin + i);
  });
}

void add_to_embedding(const Step& step, int64_t token, int site, float* out) {
  const Adapter* adapter =
      step.batch.adapters.empty() ? nullptr : step.batch.adapters[static_cast<size_t>(token)];
  const LowRank* pair = adapter == nullptr ? nullptr : adapter->at(site);
  if (pair == nullptr) return;
  float low[kMaxRank];
  dequantize(pair->a.type, pair->a.row(step.batch.tokens[static_cast<size_t>(token)]), low, pair->rank);
  for (int64_t k = 0; k < pair->rank; ++k) low[k] *= pair->scale;
  step.plan.kernels->lane_linear({
      .weight = &pair->up,
      .row_begin = 0,
      .row_end = pair->up.rows,
      .col_begin = 0,
      .col_end = pair->rank,
      .x = low,
      .x_stride = pair->rank,
      .x_rows = nullptr,
      .num_tokens = 1,
      .out = out,
      .out_stride = pair->up.rows,
      .out_rows = nullptr,
      .adds = true,
  });
}

void run_stage(const Step& step, const AdapterStage& stage, WorkShares& shares) noexcept {
  const auto& linear = std::get<LinearStage>(step.plan.stages[stage.linear]);
  const auto units_of = [](const Work& work) {
    return work.num_segments() * (work.pair.padded_rank() / kRowTile);
  };
  int64_t count = 0;
  for_each_work(step.adapted, linear, [&](const Work& work) { count += units_of(work); });
  for (Range run; !(run = shares.take(step.thread, count, 1)).empty();) {
    int64_t first = 0;
    for_each_work(step.adapted, linear, [&](const Work& work) {
      const int64_t units = units_of(work);
      if (first <= run.begin && run.begin < first + units) run_unit(step, work, run.begin - first);
      first += units;
    });
    step.activity.finish_task(step.thread);
  }
}

}  // namespace puna
