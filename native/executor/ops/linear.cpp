// Matrix products, shared out over rows of the weights.
#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/row_units.h"
#include "executor/step.h"
#include "matrix_units/tile_linear.h"

namespace puna {

int quantized_rows(ProgramBuilder& builder, int x) {
  return builder.copy_of(x, [&] {
    const int64_t cols = builder.width(x);
    const int out = builder.scratch(builder.kernels().quantized_row_bytes(cols));
    const auto run = [=](const RowRun& row) {
      const int64_t first = row.first(cols);
      row.kernels.quantize_row(row.at(x) + first, row.count(cols),
                               row.step.bytes(out, row.row) + row.kernels.quantized_row_bytes(first));
    };
    builder.append(builder.token_stage(builder.domain(x)), {{x}, out, pieces_of_columns(cols), run});
    return out;
  });
}

namespace {

// The rows of x as the matrix unit reads them.
int split_rows(ProgramBuilder& builder, int x, int num_parts) {
  const auto make = [&] {
    const TileKernels& tiles = *tile_kernels();
    const int64_t cols = builder.width(x);
    const int out = builder.scratch(tiles.row_bytes(cols, num_parts));
    const auto run = [=, split = tiles.split_row](const RowRun& row) {
      split(row.at(x), cols, num_parts, row.step.bytes(out, row.row));
    };
    builder.append(builder.token_stage(builder.domain(x)), {{x}, out, 1, run});
    return out;
  };
  return builder.copy_of(x, make, num_parts);
}

// Of whole texts: those of a few tokens would cost more than they do as others. What a token's result is must
// not hang on how many there are.
void use_tiles(ProgramBuilder& builder, LinearPart& part) {
  Plan& plan = builder.plan();
  const int num_parts = tile_parts(part.weight.type, part.weight.cols);
  if (!plan.is_encoder || !plan.kernels->uses_tiles || tile_kernels() == nullptr || num_parts == 0) return;
  part.x = split_rows(builder, part.x, num_parts);
  part.uses_tiles = plan.uses_tiles = true;
}

LinearPart part_of(ProgramBuilder& builder, const OpCall& call, size_t index) {
  const int x = call.inputs[0], out = call.outputs[index];
  const auto other = std::find(call.outputs.begin(), call.outputs.end(), out) - call.outputs.begin();
  require(static_cast<size_t>(other) == index, "linear writes one output twice");
  require(out != x, "linear cannot write over its input");
  const int64_t rows = builder.width(out);
  LinearPart part{.weight = builder.matrix(call.tensor(2 * index), builder.width(x), rows),
                  .bias = nullptr,
                  .x = x,
                  .out = out,
                  .residual = call.inputs.size() > 1 ? call.inputs[1] : kNoBuffer};
  if (call.tensors[2 * index + 1]) part.bias = builder.vector(call.tensor(2 * index + 1), rows);
  part.floats = x;
  part.site = builder.adapter_site(call.tensor(2 * index), part.weight, false);
  if (part.residual != kNoBuffer) builder.expect_width(part.residual, rows);
  use_tiles(builder, part);
  if (!part.uses_tiles && needs_quantized_input(part.weight.type)) part.x = quantized_rows(builder, x);
  return part;
}

// outputs[i] = x tensors[2 i]^T + tensors[2 i + 1], the bias, if there is one; with one output, plus a second
// input, which may be that output.
void linear(ProgramBuilder& builder, const OpCall& call) {
  const bool adds = call.inputs.size() == 2 && call.outputs.size() == 1;
  require(!call.outputs.empty(), "linear needs an output");
  call.expect(adds ? 2 : 1, call.outputs.size(), 2 * call.outputs.size());
  LinearStage stage{.domain = builder.common_domain(call.inputs), .parts = {}};
  for (size_t i = 0; i < call.outputs.size(); ++i) stage.parts.push_back(part_of(builder, call, i));
  const auto ahead = static_cast<size_t>(builder.add_stage(AdapterStage{}));
  const int at = builder.add_stage(stage);
  std::get<AdapterStage>(builder.plan().stages[ahead]).linear = static_cast<size_t>(at);
  for (const LinearPart& part : stage.parts) {
    builder.read(part.x, at);
    builder.read(part.floats, at);
    if (adds) builder.read(part.residual, at);
    builder.write(part.out, stage.domain, at, call.inputs);
  }
}

// Of each of num_heads equal runs of columns, the product with a matrix of its own.
void head_linear(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const int x = call.inputs[0], out = call.outputs[0];
  require(out != x, "linear cannot write over its input");
  const int64_t heads = call.integer("num_heads", 1, kMaxHeads);
  const int64_t cols = builder.width(x) / heads, rows = builder.width(out) / heads;
  builder.expect_width(x, cols * heads), builder.expect_width(out, rows * heads);
  LinearStage stage{.domain = builder.domain(x), .parts = {}};
  const WeightStack weights = builder.matrices(call.tensor(0), cols, rows, heads);
  for (int64_t head = 0; head < heads; ++head) {
    LinearPart part{.weight = weights.at(head), .bias = nullptr, .x = x, .out = out, .residual = kNoBuffer};
    part.x_offset = head * cols * static_cast<int64_t>(sizeof(float));
    part.out_offset = head * rows;
    if (needs_quantized_input(part.weight.type)) {
      part.x = quantized_rows(builder, x);
      part.x_offset = head * builder.kernels().quantized_row_bytes(cols);
    }
    stage.parts.push_back(part);
  }
  const int at = builder.add_stage(stage);
  builder.read(stage.parts.front().x, at);
  builder.write(out, stage.domain, at, call.inputs);
}

constexpr OpDefinition kLinearDefinitions[] = {{"Linear", linear}, {"HeadLinear", head_linear}};

}  // namespace

const OpFamily kLinearOps = kLinearDefinitions;

// --- the stage ---

namespace {

// Units that a thread takes at once: long runs, so that memory is read in order and the kernel can prefetch,
// but not so long that others wait for a thread which lost its core within one.
int64_t largest_run(const LinearStage& stage, int64_t num_rows) {
  constexpr int64_t kTileUnits = 4, kManyRows = 2048;  // half of the units take as long there
  if (stage.parts.front().uses_tiles) return num_rows > kManyRows ? kTileUnits / 2 : kTileUnits;
  constexpr int64_t kRunBytes = int64_t{1} << 17;
  constexpr int64_t kRowsPerPass = 8;  // about as many as cost one reading of the weights
  const int64_t passes = (num_rows + kRowsPerPass - 1) / kRowsPerPass;
  const auto unit_bytes = static_cast<int64_t>(stage.parts.front().weight.row_bytes) * kUnitRows;
  return std::max(kRunBytes / (unit_bytes * passes), int64_t{1});
}

int64_t units_of(const LinearStage& stage) {
  int64_t count = 0;
  for (const LinearPart& part : stage.parts) count += num_units(part.weight.rows);
  return count;
}

// The weights of a unit of the stage.
const uint8_t* unit_weights(const LinearStage& stage, int64_t unit) {
  for (const LinearPart& part : stage.parts) {
    if (unit < num_units(part.weight.rows)) return part.weight.row(unit * kUnitRows);
    unit -= num_units(part.weight.rows);
  }
  return nullptr;
}

// What a thread reads after its units up to `end`: more of its share, or the beginning of the next stage's.
const uint8_t* weights_after(const Step& step, const LinearStage& stage, int64_t count, int64_t end) {
  if (end < WorkShares::begin(step.thread + 1, count, step.num_threads)) return unit_weights(stage, end);
  return first_weights(step, stage.next);
}

void run_units(const Step& step, const LinearStage& stage, const LinearPart& part, int64_t num_rows,
               int64_t begin, int64_t end, const uint8_t* next) {
  const int64_t row_begin = begin * kUnitRows, row_end = std::min(end * kUnitRows, part.weight.rows);
  fetch_adapters(step, stage, part, row_begin, row_end);
  const LinearArgs args = {
      .weight = &part.weight,
      .x = step.bytes(part.x, 0) + part.x_offset,
      .x_stride = step.plan.buffers[static_cast<size_t>(part.x)].row_bytes,
      .x_rows = nullptr,
      .num_tokens = num_rows,
      .row_begin = row_begin,
      .row_end = row_end,
      .out = step.floats(part.out, 0) + part.out_offset,
      .out_stride = step.plan.buffers[static_cast<size_t>(part.out)].width,
      .bias = part.bias,
      .residual = part.residual < 0 ? nullptr : step.floats(part.residual, 0),
      .next = next,
  };
  if (part.uses_tiles)
    tile_kernels()->linear(args, step.tile_scratch);
  else
    step.plan.kernels->linear(args);
  add_adapters(step, stage, part, row_begin, row_end);
}

}  // namespace

const uint8_t* first_weights(const Step& step, size_t linear_stage) {
  if (linear_stage == step.plan.stages.size()) return nullptr;
  const auto& stage = std::get<LinearStage>(step.plan.stages[linear_stage]);
  return unit_weights(stage, WorkShares::begin(step.thread, units_of(stage), step.num_threads));
}

void run_stage(const Step& step, const LinearStage& stage, WorkShares& shares) noexcept {
  const int64_t num_rows = step.num_rows(stage.domain);
  if (num_rows == 0) return;
  begin_adapters(step, stage);
  const int64_t count = units_of(stage);
  const int64_t largest = largest_run(stage, num_rows);
  for (Range run; !(run = shares.take(step.thread, count, largest)).empty();) {
    const uint8_t* after = weights_after(step, stage, count, run.end);
    int64_t first = 0;  // unit of the part
    for (const LinearPart& part : stage.parts) {
      const int64_t units = num_units(part.weight.rows);
      const int64_t begin = std::max(run.begin - first, int64_t{0}), end = std::min(run.end - first, units);
      first += units;
      const uint8_t* next = first < run.end ? unit_weights(stage, first) : after;
      if (begin < end) run_units(step, stage, part, num_rows, begin, end, next);
    }
    step.activity.finish_task(step.thread);
    if (step.must_leave()) return;
  }
}

}  // namespace puna
