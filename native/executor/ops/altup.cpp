// Several copies of the residual stream, side by side in a row, of which layers compute one (AltUp).
#include <algorithm>
#include <array>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

constexpr int64_t kMaxStreams = 16;

// x and out: streams of equal width.
int64_t stream_width(ProgramBuilder& builder, const OpCall& call, int64_t num_streams) {
  const int64_t width = builder.width(call.inputs[0]);
  builder.expect_width(call.outputs[0], width);
  require(width % num_streams == 0, text(num_streams) + " streams do not divide a width of " + text(width));
  for (const int input : call.inputs)
    require(input != call.outputs[0], call.name + " cannot write over its input");
  return width / num_streams;
}

void append(ProgramBuilder& builder, const OpCall& call, std::function<void(const RowRun&)> run) {
  const int stage = builder.token_stage(builder.common_domain(call.inputs));
  builder.append(stage, {call.inputs, call.outputs[0], 1, std::move(run)});
}

// Each stream and all streams times the weights of its row.
void predict(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const int x = call.inputs[0], weights = call.inputs[1], out = call.outputs[0];
  const int64_t streams = call.integer("num_streams", 1, kMaxStreams);
  const int64_t width = stream_width(builder, call, streams);
  builder.expect_width(weights, streams * streams);
  append(builder, call, [=](const RowRun& row) {
    std::array<int32_t, kMaxStreams> all{};
    for (int32_t s = 0; s < streams; ++s) all[static_cast<size_t>(s)] = s;
    for (int64_t s = 0; s < streams; ++s) {
      std::array<float, kMaxStreams> factors{};
      std::copy_n(row.at(weights) + s * streams, streams, factors.begin());
      factors[static_cast<size_t>(s)] += 1.0f;
      row.kernels.weighted_sum(row.at(x), width, all.data(), factors.data(), streams, width,
                               row.at(out) + s * width);
    }
  });
}

// Each stream and (1 + its weight) times how far the computed one is from what the first was thought to be.
void correct(ProgramBuilder& builder, const OpCall& call) {
  call.expect(3, 1, 0);
  const int x = call.inputs[0], computed = call.inputs[1], weights = call.inputs[2], out = call.outputs[0];
  const int64_t streams = builder.width(weights), width = stream_width(builder, call, streams);
  builder.expect_width(computed, width);
  append(builder, call, [=](const RowRun& row) {
    const float *first = row.at(x), *y = row.at(computed);
    for (int64_t s = 0; s < streams; ++s) {
      const float factor = 1.0f + row.at(weights)[s];
      const float* from = row.at(x) + s * width;
      float* to = row.at(out) + s * width;
      for (int64_t i = 0; i < width; ++i) to[i] = from[i] + factor * (y[i] - first[i]);
    }
  });
}

// y for all streams but the first.
void add_to_others(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const int x = call.inputs[0], y = call.inputs[1], out = call.outputs[0];
  const int64_t width = builder.width(y);
  require(builder.width(x) % width == 0, "streams are not as wide as what is added to them");
  const int64_t streams = builder.width(x) / width;
  stream_width(builder, call, streams);
  append(builder, call, [=](const RowRun& row) {
    std::copy_n(row.at(x), width, row.at(out));
    for (int64_t at = width; at < streams * width; at += width)
      row.kernels.add(row.at(x) + at, row.at(y), width, row.at(out) + at);
  });
}

constexpr OpDefinition kAltUpDefinitions[] = {
    {"AltUpPredict", predict}, {"AltUpCorrect", correct}, {"AltUpAddToOthers", add_to_others}};

}  // namespace

const OpFamily kAltUpOps = kAltUpDefinitions;

}  // namespace puna
