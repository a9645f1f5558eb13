// Layers that keep a state of fixed size: short convolutions and scans.
//
// A scan's state is a matrix for each head. It lies in a block head by head, a head's in runs of columns
// (kStateColumns), and each run of a head is a part that one thread takes through all tokens of a sequence.
#include "executor/recurrence.h"

#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

void add_stage(ProgramBuilder& builder, const OpCall& call, int64_t parts, int64_t state_values,
               std::function<void(const RecurrenceRun&)> run) {
  const int out = call.outputs[0];
  require(builder.common_domain(call.inputs) == Domain::kTokens, call.name + " after the choice of rows");
  require(std::find(call.inputs.begin(), call.inputs.end(), out) == call.inputs.end(),
          call.name + " cannot write over its input");
  const auto layer = static_cast<int>(call.integer("layer", 0, kMaxHeads));
  Plan& plan = builder.plan();
  RecurrenceStage stage{.inputs = call.inputs,
                        .out = out,
                        .parts = parts,
                        .state_offset = builder.add_state(layer, state_values),
                        .kept_offset = plan.kept_row_bytes,
                        .run = std::move(run)};
  for (const int input : call.inputs)
    plan.kept_row_bytes += builder.width(input) * static_cast<int64_t>(sizeof(float));
  const int at = builder.add_stage(std::move(stage));
  for (const int input : call.inputs) builder.read(input, at);
  builder.write(out, Domain::kTokens, at, {});
}

// --- short convolutions ---

constexpr int64_t kMaxConvSize = 64, kConvPart = 256;

// [size][stride], of a tensor [channels][size]; stride: of channels, perhaps with zeros behind.
const float* transposed(ProgramBuilder& builder, const std::string& name, int64_t size, int64_t channels,
                        int64_t stride) {
  const float* weight = builder.values(name, size * channels);
  std::vector<float> columns(static_cast<size_t>(size * stride));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < size; ++i) columns[static_cast<size_t>(i * stride + c)] = weight[c * size + i];
  return builder.constant(columns);
}

void short_conv(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 2);
  const int64_t channels = builder.width(call.inputs[0]);
  require(channels > 0, "ShortConv reads a buffer without width");
  builder.expect_width(call.outputs[0], channels);
  const std::string& function = call.text("function");
  require(function == "silu" || function == "none", "unknown function \"" + function + "\" (silu, none)");
  const int64_t size = builder.weight(call.tensor(0)).cols;
  require_range("the tokens of a short convolution", size, 2, kMaxConvSize);
  builder.matrix(call.tensor(0), size, channels);
  const float* weight = transposed(builder, call.tensor(0), size, channels, channels);
  const float* bias = call.tensors[1] ? builder.vector(call.tensor(1), channels) : nullptr;
  const bool has_silu = function == "silu";
  const auto run = [=](const RecurrenceRun& run) {
    const int64_t first = run.part * kConvPart;
    const auto at = [first](auto* data) { return data == nullptr ? nullptr : data + first; };
    run.kernels.short_conv({.x = {run.inputs[0].data + first, run.inputs[0].stride},
                            .out = {at(run.out.data), run.out.stride},
                            .weight = weight + first,
                            .bias = at(bias),
                            .has_silu = has_silu,
                            .num_tokens = run.num_tokens,
                            .size = size,
                            .channels = std::min(kConvPart, channels - first),
                            .stride = channels,
                            .state_in = at(run.before),
                            .state_out = at(run.after)});
  };
  add_stage(builder, call, (channels + kConvPart - 1) / kConvPart, (size - 1) * channels, run);
}

// --- scans ---

// How the heads' matrices lie in a state.
struct HeadStates {
  int64_t rows, columns;  // of a head

  int64_t parts_of_head() const { return (columns + kStateColumns - 1) / kStateColumns; }
  int64_t head_values() const {
    const int64_t whole = columns / kStateColumns * kStateColumns;
    return rows * (whole + state_stride(columns - whole));
  }

  int64_t head(int64_t part) const { return part / parts_of_head(); }
  int64_t first_column(int64_t part) const { return part % parts_of_head() * kStateColumns; }

  // Calls scan(columns of the state) for a part; what is not wanted of the state behind is dropped.
  template <typename Function>
  void run(const RecurrenceRun& run, Function scan) const {
    alignas(64) float dropped[kMaxStateRows * kStateColumns];
    const int64_t first = first_column(run.part), begin = head(run.part) * head_values() + rows * first;
    scan({.num_tokens = run.num_tokens,
          .rows = rows,
          .columns = std::min(kStateColumns, columns - first),
          .before = run.before == nullptr ? nullptr : run.before + begin,
          .after = run.after == nullptr ? dropped : run.after + begin});
  }
};

// The tokens' values from a column on.
template <typename Float>
TokenRows<Float> from(const TokenRows<Float>& rows, int64_t column) {
  return {rows.data == nullptr ? nullptr : rows.data + column, rows.stride};
}

void gated_delta_net(ProgramBuilder& builder, const OpCall& call) {
  call.expect(5, 1, 0);
  const int64_t key_heads = call.integer("num_key_heads", 1, kMaxHeads);
  const int64_t heads = call.integer("num_value_heads", 1, kMaxHeads);
  const int64_t key_dim = call.integer("key_dim", 1, kMaxStateRows);
  const int64_t value_dim = call.integer("value_dim", 1, kMaxHeadDim);
  const bool is_grouped = call.integer("grouped", 0, 1) == 1;
  const float scale = call.number("scale");
  require(heads % key_heads == 0,
          text(heads) + " heads cannot be shared out over " + text(key_heads) + " key heads");
  const bool decays_rows = call.integer("decays_rows", 0, 1) == 1;
  const int64_t decays = decays_rows ? key_dim : 1;
  const int64_t widths[] = {key_heads * key_dim, key_heads * key_dim, heads * value_dim, heads * decays,
                            heads};
  for (size_t i = 0; i < 5; ++i) builder.expect_width(call.inputs[i], widths[i]);
  builder.expect_width(call.outputs[0], heads * value_dim);
  const HeadStates states{key_dim, value_dim};
  const auto run = [=](const RecurrenceRun& run) {
    const int64_t head = states.head(run.part), value = head * value_dim + states.first_column(run.part);
    const int64_t key = (is_grouped ? head / (heads / key_heads) : head % key_heads) * key_dim;
    states.run(run, [&](const StateColumns& state) {
      run.kernels.delta_net({.state = state,
                             .decays_rows = decays_rows,
                             .q = from(run.inputs[0], key),
                             .k = from(run.inputs[1], key),
                             .v = from(run.inputs[2], value),
                             .decay = from(run.inputs[3], head * decays),
                             .beta = from(run.inputs[4], head),
                             .out = from(run.out, value),
                             .scale = scale});
    });
  };
  add_stage(builder, call, heads * states.parts_of_head(), heads * states.head_values(), run);
}

void selective_scan(ProgramBuilder& builder, const OpCall& call) {
  call.expect(4, 1, 3);
  const int64_t heads = call.integer("num_heads", 1, kMaxHeads);
  const int64_t head_dim = call.integer("head_dim", 1, kMaxHeadDim);
  const int64_t groups = call.integer("num_groups", 1, heads);
  const int64_t state_dim = call.integer("state_dim", 1, kMaxStateRows);
  require(heads % groups == 0, text(heads) + " heads cannot be shared out over " + text(groups) + " groups");
  const int64_t widths[] = {heads * head_dim, groups * state_dim, groups * state_dim, heads};
  for (size_t i = 0; i < 4; ++i) builder.expect_width(call.inputs[i], widths[i]);
  builder.expect_width(call.outputs[0], heads * head_dim);
  const float* a = builder.values(call.tensor(0), heads);
  const float* d = builder.values(call.tensor(1), heads);
  const float* dt_bias = builder.values(call.tensor(2), heads);
  const HeadStates states{state_dim, head_dim};
  const auto run = [=](const RecurrenceRun& run) {
    const int64_t head = states.head(run.part), value = head * head_dim + states.first_column(run.part);
    const int64_t group = head / (heads / groups) * state_dim;
    states.run(run, [&](const StateColumns& state) {
      run.kernels.selective_scan({.state = state,
                                  .x = from(run.inputs[0], value),
                                  .b = from(run.inputs[1], group),
                                  .c = from(run.inputs[2], group),
                                  .dt = from(run.inputs[3], head),
                                  .out = from(run.out, value),
                                  .a = a[head],
                                  .d = d[head],
                                  .dt_bias = dt_bias[head]});
    });
  };
  add_stage(builder, call, heads * states.parts_of_head(), heads * states.head_values(), run);
}

void channel_scan(ProgramBuilder& builder, const OpCall& call) {
  call.expect(4, 1, 2);
  const int64_t channels = builder.width(call.inputs[0]);
  require(channels > 0, "ChannelScan reads a buffer without width");
  const int64_t state_dim = call.integer("state_dim", 1, kMaxStateRows);
  const int64_t widths[] = {channels, state_dim, state_dim, channels};
  for (size_t i = 0; i < 4; ++i) builder.expect_width(call.inputs[i], widths[i]);
  builder.expect_width(call.outputs[0], channels);
  builder.matrix(call.tensor(0), state_dim, channels);
  const int64_t stride = state_stride(channels);
  const float* a = transposed(builder, call.tensor(0), state_dim, channels, stride);
  const float* d = builder.values(call.tensor(1), channels);
  const HeadStates states{state_dim, channels};
  const auto run = [=](const RecurrenceRun& run) {
    const int64_t first = states.first_column(run.part);
    states.run(run, [&](const StateColumns& state) {
      run.kernels.channel_scan({.state = state,
                                .x = from(run.inputs[0], first),
                                .dt = from(run.inputs[3], first),
                                .b = run.inputs[1],
                                .c = run.inputs[2],
                                .out = from(run.out, first),
                                .a = a + first,
                                .a_stride = stride,
                                .d = d + first});
    });
  };
  add_stage(builder, call, states.parts_of_head(), states.head_values(), run);
}

constexpr OpDefinition kRecurrenceDefinitions[] = {{"ShortConv", short_conv},
                                                   {"GatedDeltaNet", gated_delta_net},
                                                   {"SelectiveScan", selective_scan},
                                                   {"ChannelScan", channel_scan}};

}  // namespace

const OpFamily kRecurrenceOps = kRecurrenceDefinitions;

}  // namespace puna
