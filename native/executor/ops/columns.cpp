// Columns taken out of rows and put together.
#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// Of every `period` columns, `size` from `begin` on. Rows are cut between periods; within the only one where
// all of its columns were written before this stage.
void columns(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t period = call.integer("period", 1, INT32_MAX), num_runs = builder.width(x) / period;
  const int64_t begin = call.integer("begin", 0, period), size = call.integer("size", 1, period - begin);
  builder.expect_width(x, num_runs * period), builder.expect_width(out, num_runs * size);
  require(x != out, "Columns cannot write over its input");
  const int stage = builder.token_stage(builder.domain(x));
  if (num_runs == 1 && builder.last_writer(x) != stage) {
    const auto run = [=](const RowRun& row) {
      std::copy_n(row.at(x) + begin + row.first(size), row.count(size), row.at(out) + row.first(size));
    };
    return builder.append(stage, {{x}, out, pieces_of_columns(size), run});
  }
  const auto run = [=](const RowRun& row) {
    for (int64_t i = row.first(num_runs), end = i + row.count(num_runs); i < end; ++i)
      std::copy_n(row.at(x) + i * period + begin, size, row.at(out) + i * size);
  };
  builder.append(stage, {{x}, out, num_runs, run});
}

// In each of num_runs runs of columns, those of a and then those of b.
void concat(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const int a = call.inputs[0], b = call.inputs[1], out = call.outputs[0];
  const int64_t num_runs = call.integer("num_runs", 1, kMaxHeads);
  const int64_t a_size = builder.width(a) / num_runs, b_size = builder.width(b) / num_runs;
  builder.expect_width(a, a_size * num_runs), builder.expect_width(b, b_size * num_runs);
  builder.expect_width(out, (a_size + b_size) * num_runs);
  const auto run = [=](const RowRun& row) {
    for (int64_t i = row.first(num_runs), end = i + row.count(num_runs); i < end; ++i) {
      float* to = std::copy_n(row.at(a) + i * a_size, a_size, row.at(out) + i * (a_size + b_size));
      std::copy_n(row.at(b) + i * b_size, b_size, to);
    }
  };
  const Domain domain = builder.common_domain(call.inputs);
  builder.append(builder.token_stage(domain), {call.inputs, out, num_runs, run});
}

// A row several times, one behind the other.
void repeat(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t times = call.integer("times", 1, kMaxHeads), width = builder.width(x);
  builder.expect_width(out, width * times);
  require(x != out, "Repeat cannot write over its input");
  const auto run = [=](const RowRun& row) {
    for (int64_t i = row.first(times), end = i + row.count(times); i < end; ++i)
      std::copy_n(row.at(x), width, row.at(out) + i * width);
  };
  const int stage = builder.token_stage(builder.domain(x));
  builder.append(stage, {{x}, out, builder.last_writer(x) == stage ? 1 : times, run});
}

constexpr OpDefinition kColumnDefinitions[] = {{"Columns", columns}, {"Concat", concat}, {"Repeat", repeat}};

}  // namespace

const OpFamily kColumnOps = kColumnDefinitions;

}  // namespace puna
