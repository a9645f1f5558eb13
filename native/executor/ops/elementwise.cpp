// Ops whose result at a place depends on their inputs at that place alone.
#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// function(inputs..., n, out) for any n neighbouring places.
template <size_t kInputs, typename Function>
void elementwise(ProgramBuilder& builder, const OpCall& call, Function function, size_t num_tensors = 0) {
  call.expect(kInputs, 1, num_tensors);
  const int out = call.outputs[0];
  const int64_t width = builder.width(out);
  for (const int input : call.inputs) builder.expect_width(input, width);
  const Domain domain = builder.common_domain(call.inputs);
  const auto run = [x = call.inputs.front(), y = call.inputs.back(), out, width,
                    function](const RowRun& row) {
    const int64_t first = row.first(width), count = row.count(width);
    if constexpr (kInputs == 1)
      function(row.at(x) + first, count, row.at(out) + first);
    else
      function(row.at(x) + first, row.at(y) + first, count, row.at(out) + first);
  };
  builder.append(builder.token_stage(domain), {call.inputs, out, pieces_of_columns(width), run});
}

void add(ProgramBuilder& builder, const OpCall& call) {
  elementwise<2>(builder, call, builder.kernels().add);
}

// Each row of x times the one value of the row of factors.
void mul_rows(ProgramBuilder& builder, const OpCall& call) {
  const int x = call.inputs[0], factors = call.inputs[1], out = call.outputs[0];
  const int64_t width = builder.width(out);
  builder.expect_width(x, width);
  const auto run = [=](const RowRun& row) {
    const int64_t first = row.first(width);
    row.kernels.scale(row.at(x) + first, row.at(factors)[0], row.count(width), row.at(out) + first);
  };
  const Domain domain = builder.common_domain(call.inputs);
  builder.append(builder.token_stage(domain), {call.inputs, out, pieces_of_columns(width), run});
}

// Each run of a row's columns times a factor of its own.
void mul_runs(ProgramBuilder& builder, const OpCall& call) {
  const int x = call.inputs[0], factors = call.inputs[1], out = call.outputs[0];
  const int64_t width = builder.width(out), num_runs = builder.width(factors);
  builder.expect_width(x, width);
  require(num_runs > 0 && width % num_runs == 0,
          text(num_runs) + " factors cannot be shared out over " + text(width) + " columns");
  const auto run = [=, size = width / num_runs](const RowRun& row) {
    for (int64_t i = row.first(num_runs), end = i + row.count(num_runs); i < end; ++i)
      row.kernels.scale(row.at(x) + i * size, row.at(factors)[i], size, row.at(out) + i * size);
  };
  const Domain domain = builder.common_domain(call.inputs);
  builder.append(builder.token_stage(domain), {call.inputs, out, num_runs, run});
}

void mul(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, 0);
  const int64_t num_factors = builder.width(call.inputs[1]);
  if (num_factors == 1) return mul_rows(builder, call);
  if (num_factors < builder.width(call.inputs[0])) return mul_runs(builder, call);
  elementwise<2>(builder, call, builder.kernels().mul);
}

using BinaryKernel = void (*)(const float* a, const float* b, int64_t n, float* out);

// function(x, values) for each row; values: of all columns.
void with_values(ProgramBuilder& builder, const OpCall& call, const float* values, BinaryKernel function) {
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(out);
  builder.expect_width(x, width);
  const auto run = [=](const RowRun& row) {
    const int64_t first = row.first(width);
    function(row.at(x) + first, values + first, row.count(width), row.at(out) + first);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, pieces_of_columns(width), run});
}

void add_vector(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  with_values(builder, call, builder.vector(call.tensor(0), builder.width(call.outputs[0])),
              builder.kernels().add);
}

void scale_by(ProgramBuilder& builder, const OpCall& call, float factor) {
  const auto run = [scale = builder.kernels().scale, factor](const float* x, int64_t n, float* out) {
    scale(x, factor, n, out);
  };
  elementwise<1>(builder, call, run, call.tensors.size());
}

// x plus the first row of a matrix.
void add_first_row(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(out);
  builder.expect_width(x, width);
  const Weight weight = builder.weight(call.tensor(0));
  builder.matrix(call.tensor(0), width, weight.rows);
  std::vector<float> row(static_cast<size_t>(width));
  dequantize(weight.type, weight.data, row.data(), width);
  const float* values = builder.constant(row);
  const auto run = [=](const RowRun& row) {
    const int64_t first = row.first(width);
    row.kernels.add(row.at(x) + first, values + first, row.count(width), row.at(out) + first);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, pieces_of_columns(width), run});
}

void mul_vector(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const Weight shape = builder.weight(call.tensor(0));
  const int64_t size = shape.cols * shape.rows, width = builder.width(call.outputs[0]);
  const float* values = builder.values(call.tensor(0), size);
  if (size == 1) return scale_by(builder, call, *values);
  require(width % size == 0,
          "tensor " + call.tensor(0) + " cannot be shared out over " + text(width) + " columns");
  std::vector<float> factors(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) factors[static_cast<size_t>(i)] = values[i / (width / size)];
  with_values(builder, call, size == width ? values : builder.constant(factors), builder.kernels().mul);
}

void scale(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  scale_by(builder, call, call.number("factor"));
}

void softcap(ProgramBuilder& builder, const OpCall& call) {
  const float cap = call.number("cap");
  require(cap > 0, "a soft cap is not positive");
  const auto run = [softcap = builder.kernels().softcap, cap](const float* x, int64_t n, float* out) {
    softcap(x, cap, n, out);
  };
  elementwise<1>(builder, call, run);
}

void clamp(ProgramBuilder& builder, const OpCall& call) {
  const float limit = call.number("limit");
  require(limit > 0, "Clamp.limit is not positive");
  const auto run = [clamp = builder.kernels().clamp, limit](const float* x, int64_t n, float* out) {
    clamp(x, limit, n, out);
  };
  elementwise<1>(builder, call, run);
}

void xielu(ProgramBuilder& builder, const OpCall& call) {
  const Xielu f{call.number("positive"), call.number("negative"), call.number("beta"), call.number("eps")};
  const auto run = [xielu = builder.kernels().xielu, f](const float* x, int64_t n, float* out) {
    xielu(f, x, n, out);
  };
  elementwise<1>(builder, call, run);
}

void activate(ProgramBuilder& builder, const OpCall& call) {
  const auto run = [activate = builder.kernels().activate, function = function_named(call.text("function"))](
                       const float* x, int64_t n, float* out) { activate(function, x, n, out); };
  elementwise<1>(builder, call, run);
}

// Over the whole row.
void gaussian_top_k(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 0);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(out);
  builder.expect_width(x, width);
  require(width > 1, "a single value has no deviation");
  const auto run = [=, deviations = call.number("deviations")](const RowRun& row) {
    row.kernels.gaussian_top_k(row.at(x), deviations, width, row.at(out));
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, 1, run});
}

void glu(ProgramBuilder& builder, const OpCall& call) {
  const auto run = [glu = builder.kernels().glu, gating = gating_of(call)](const float* gate, const float* up,
                                                                           int64_t n, float* out) {
    glu(gating, gate, up, n, out);
  };
  elementwise<2>(builder, call, run);
}

constexpr OpDefinition kElementwiseDefinitions[] = {
    {"Add", add},         {"AddFirstRow", add_first_row},   {"AddVector", add_vector},
    {"Mul", mul},         {"MulVector", mul_vector},        {"Scale", scale},
    {"Softcap", softcap}, {"GaussianTopK", gaussian_top_k}, {"Clamp", clamp},
    {"Xielu", xielu},     {"Activation", activate},         {"Glu", glu},
};

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  if (name == "swiglu_oai") return Activation::kSwigluOai;
  if (name == "silu_limited") return Activation::kSiluLimited;
  if (name == "limited_silu") return Activation::kLimitedSilu;
  throw Error("unknown activation \"" + name +
              "\" (silu, gelu, relu, swiglu_oai, silu_limited, limited_silu)");
}

bool has_limit(Activation activation) {
  return activation == Activation::kSiluLimited || activation == Activation::kLimitedSilu;
}

}  // namespace

Gating gating_of(const OpCall& call) {
  const Activation activation = activation_named(call.text("activation"));
  if (!has_limit(activation)) return {activation, 0.0f};
  const float limit = call.number("limit");
  require(limit > 0, call.name + ".limit is not positive");
  return {activation, limit};
}

Activation function_named(const std::string& name) {
  if (name == "sigmoid") return Activation::kSigmoid;
  if (name == "softplus") return Activation::kSoftplus;
  if (name == "relu_squared") return Activation::kReluSquared;
  if (name == "tanh") return Activation::kTanh;
  const Activation activation = activation_named(name);
  require(activation != Activation::kSwigluOai && !has_limit(activation),
          name + " is a function of two values");
  return activation;
}

const OpFamily kElementwiseOps = kElementwiseDefinitions;

}  // namespace puna
