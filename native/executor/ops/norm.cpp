#include <algorithm>
#include <cmath>
#include <vector>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// What norms with a weight have in common: they go over consecutive groups, each as long as a row of the
// weight, whose rows take turns. normalize: (kernels, x, offset in the weight, values of a group, out).
template <typename Normalize>
void append_norm(ProgramBuilder& builder, const OpCall& call, int64_t group, int64_t size,
                 const Normalize& normalize) {
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  require(width % size == 0, "tensor " + call.tensor(0) + ": groups of " + text(size) +
                                 " do not divide a width of " + text(width));
  const auto run = [=](const RowRun& row) {
    const int64_t begin = row.first(width / group) * group, end = begin + row.count(width / group) * group;
    for (int64_t i = begin; i < end; i += group)
      normalize(row.kernels, row.at(x) + i, i % size, group, row.at(out) + i);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, width / group, run});
}

float epsilon(const OpCall& call) {
  const float eps = call.number("eps");
  require(eps >= 0, call.name + ".eps is negative");
  return eps;
}

void rms_norm(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const float eps = epsilon(call);
  const Weight shape = builder.weight(call.tensor(0));
  const int64_t size = shape.cols * shape.rows;
  const float* weight = builder.values(call.tensor(0), size);
  append_norm(builder, call, shape.cols, size,
              [=](const Kernels& kernels, const float* x, int64_t offset, int64_t n, float* out) {
                kernels.rms_norm(x, weight + offset, eps, n, out);
              });
}

void layer_norm(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 2);
  const float eps = epsilon(call);
  const Weight shape = builder.weight(call.tensor(0));
  const int64_t size = shape.cols * shape.rows;
  const float* weight = builder.values(call.tensor(0), size);
  const float* bias = call.tensors[1] ? builder.values(call.tensor(1), size) : nullptr;
  append_norm(builder, call, shape.cols, size,
              [=](const Kernels& kernels, const float* x, int64_t offset, int64_t n, float* out) {
                kernels.layer_norm(x, weight + offset, bias == nullptr ? nullptr : bias + offset, eps, n,
                                   out);
              });
}

// Over the whole row.
void standardize(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  const float eps = epsilon(call);
  const float* ones = builder.constant(std::vector<float>(static_cast<size_t>(width), 1.0f));
  const auto run = [=](const RowRun& row) {
    row.kernels.layer_norm(row.at(x), ones, nullptr, eps, width, row.at(out));
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, 1, run});
}

// Over consecutive groups of `size`.
void l2_norm(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  const float eps = call.number("eps");
  require(eps > 0, "L2Norm.eps is not positive");
  const int64_t group = call.integer("size", 1, std::max<int64_t>(width, 1));
  require(width % group == 0, "groups of " + text(group) + " do not divide a width of " + text(width));
  const auto run = [=](const RowRun& row) {
    const int64_t begin = row.first(width / group) * group, end = begin + row.count(width / group) * group;
    for (int64_t i = begin; i < end; i += group)
      row.kernels.l2_norm(row.at(x) + i, eps, group, row.at(out) + i);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, width / group, run});
}

// Of few values, such as labels.
void softmax(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  const auto run = [=](const RowRun& row) {
    const float *from = row.at(x), highest = *std::max_element(from, from + width);
    float *to = row.at(out), total = 0.0f;
    for (int64_t i = 0; i < width; ++i) total += to[i] = std::exp(from[i] - highest);
    for (int64_t i = 0; i < width; ++i) to[i] /= total;
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, 1, run});
}

float magnitude(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return static_cast<float>(std::sqrt(squares));
}

// Groups as wide as `like`, each brought to its magnitude.
void match_magnitude(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const int x = call.inputs[0], like = call.inputs[1], out = call.outputs[0];
  const int64_t width = builder.width(x), group = builder.width(like);
  builder.expect_width(out, width);
  require(width % group == 0, "groups of " + text(group) + " do not divide a width of " + text(width));
  const auto run = [=](const RowRun& row) {
    constexpr float kSmallest = 1e-30f;
    const float wanted = magnitude(row.at(like), group);
    for (int64_t i = 0; i < width; i += group) {
      const float factor = wanted / std::max(magnitude(row.at(x) + i, group), kSmallest);
      row.kernels.scale(row.at(x) + i, factor, group, row.at(out) + i);
    }
  };
  builder.append(builder.token_stage(builder.common_domain(call.inputs)), {call.inputs, out, 1, run});
}

constexpr OpDefinition kNormDefinitions[] = {
    {"RmsNorm", rms_norm}, {"LayerNorm", layer_norm},           {"Standardize", standardize},
    {"L2Norm", l2_norm},   {"MatchMagnitude", match_magnitude}, {"Softmax", softmax}};

}  // namespace

const OpFamily kNormOps = kNormDefinitions;

}  // namespace puna
