// Ops that look rows up: of a table, by token; of a step's tokens, those of which something is wanted.
#include <algorithm>
#include <cstring>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

void embed(ProgramBuilder& builder, const OpCall& call) {
  call.expect(0, 1, 1);
  const std::string& name = call.tensor(0);
  const int out = call.outputs[0];
  const Weight weight = builder.weight(name);
  require(weight.cols == builder.width(out), "tensor " + name + " has rows of " + text(weight.cols) +
                                                 " values where the model needs " + text(builder.width(out)));
  require_range("the number of tokens", weight.rows, 1, kMaxVocabulary);
  int64_t& vocab_size = builder.plan().vocab_size;
  vocab_size = vocab_size == 0 ? weight.rows : std::min(vocab_size, weight.rows);
  const int site = builder.adapter_site(name, weight, true);
  const auto run = [=](const RowRun& row) {
    const int32_t token = row.step.batch.tokens[static_cast<size_t>(row.row)];
    dequantize(weight.type, weight.row(token), row.at(out), weight.cols);
    add_to_embedding(row.step, row.row, site, row.at(out));
  };
  builder.append(builder.token_stage(Domain::kTokens), {{}, out, 1, run});
}

// A context is never longer than the table: the graph sees to that, and no table is read behind its end.
void embed_position(ProgramBuilder& builder, const OpCall& call) {
  call.expect(0, 1, 1);
  const int out = call.outputs[0];
  const Weight weight = builder.weight(call.tensor(0));
  require(weight.cols == builder.width(out), "tensor " + call.tensor(0) + " has rows of " +
                                                 text(weight.cols) + " values where the model needs " +
                                                 text(builder.width(out)));
  require_range("the number of positions", weight.rows, 1, INT32_MAX);
  const auto run = [=](const RowRun& row) {
    const int64_t position = row.step.batch.positions[static_cast<size_t>(row.row)];
    dequantize(weight.type, weight.row(std::min(position, weight.rows - 1)), row.at(out), weight.cols);
  };
  builder.append(builder.token_stage(Domain::kTokens), {{}, out, 1, run});
  builder.set_positioned(out);
}

// What the model made of the token before each token.
void hidden_before(ProgramBuilder& builder, const OpCall& call) {
  call.expect(0, 1, 0);
  const int out = call.outputs[0];
  const auto width = static_cast<size_t>(call.integer("size", 1, INT32_MAX));
  builder.expect_width(out, static_cast<int64_t>(width));
  const auto run = [=](const RowRun& row) {
    const float* before = row.step.batch.before.data() + static_cast<size_t>(row.row) * width;
    std::memcpy(row.at(out), before, width * sizeof(float));
  };
  builder.append(builder.token_stage(Domain::kTokens), {{}, out, 1, run});
}

void choose_rows(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  require(builder.domain(x) == Domain::kTokens, "the rows have been chosen already");
  const auto run = [=](const RowRun& row) {
    const Batch& batch = row.step.batch;
    const size_t index = static_cast<size_t>(row.row), num_sampled = batch.rows.size();
    const int32_t token = index < num_sampled ? batch.rows[index] : batch.hidden[index - num_sampled];
    std::memcpy(row.at(out), row.step.floats(x, token), static_cast<size_t>(width) * sizeof(float));
  };
  builder.append(builder.token_stage(Domain::kRows), {{x}, out, 1, run});
}

// For each chosen row what its text's tokens up to it have together: sums in their order, or the first one's.
void pool_rows(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  require(builder.domain(x) == Domain::kTokens, "the rows have been chosen already");
  const std::string& kind = call.text("kind");
  require(kind == "mean" || kind == "first", "unknown pooling \"" + kind + "\" (mean, first)");
  builder.plan().is_encoder = true;
  const auto run = [=, is_mean = kind == "mean"](const RowRun& row) {
    const Batch& batch = row.step.batch;
    const size_t index = static_cast<size_t>(row.row), num_sampled = batch.rows.size();
    const int64_t last = index < num_sampled ? batch.rows[index] : batch.hidden[index - num_sampled];
    const int64_t first = last - batch.positions[static_cast<size_t>(last)], begin = row.first(width);
    const int64_t count = row.count(width);
    float* to = row.at(out) + begin;
    std::copy_n(row.step.floats(x, first) + begin, count, to);
    if (!is_mean) return;
    for (int64_t token = first + 1; token <= last; ++token)
      row.kernels.add(to, row.step.floats(x, token) + begin, count, to);
    row.kernels.scale(to, 1.0f / static_cast<float>(last - first + 1), count, to);
  };
  builder.append(builder.token_stage(Domain::kRows), {{x}, out, pieces_of_columns(width), run});
}

// Of the chosen rows, the first ones are those to be sampled.
void choose_sampled(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  require(builder.domain(x) == Domain::kRows, "rows to be sampled are among those that were chosen");
  const auto run = [=](const RowRun& row) {
    std::memcpy(row.at(out), row.step.floats(x, row.row), static_cast<size_t>(width) * sizeof(float));
  };
  builder.append(builder.token_stage(Domain::kSampled), {{x}, out, 1, run});
}

constexpr OpDefinition kRowDefinitions[] = {
    {"Embed", embed},      {"EmbedPosition", embed_position}, {"HiddenBefore", hidden_before},
    {"Rows", choose_rows}, {"PooledRows", pool_rows},         {"SampledRows", choose_sampled}};

}  // namespace

const OpFamily kRowOps = kRowDefinitions;

}  // namespace puna
