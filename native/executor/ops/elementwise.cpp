// Ops whose result at a place depends on their inputs at that place alone.
#include <array>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// function(inputs..., n, out) for any n neighbouring places.
template <size_t kInputs, typename Function>
void elementwise(ProgramBuilder& builder, const OpCall& call, Function function) {
  call.expect(kInputs, 1, 0);
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

void mul(ProgramBuilder& builder, const OpCall& call) {
  elementwise<2>(builder, call, builder.kernels().mul);
}

void scale(ProgramBuilder& builder, const OpCall& call) {
  const auto run = [scale = builder.kernels().scale, factor = call.number("factor")](
                       const float* x, int64_t n, float* out) { scale(x, factor, n, out); };
  elementwise<1>(builder, call, run);
}

void softcap(ProgramBuilder& builder, const OpCall& call) {
  const float cap = call.number("cap");
  require(cap > 0, "a soft cap is not positive");
  const auto run = [softcap = builder.kernels().softcap, cap](const float* x, int64_t n, float* out) {
    softcap(x, cap, n, out);
  };
  elementwise<1>(builder, call, run);
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  throw Error("unknown activation \"" + name + "\" (silu, gelu, relu)");
}

void glu(ProgramBuilder& builder, const OpCall& call) {
  const auto run = [glu = builder.kernels().glu, activation = activation_named(call.text("activation"))](
                       const float* gate, const float* up, int64_t n, float* out) {
    glu(activation, gate, up, n, out);
  };
  elementwise<2>(builder, call, run);
}

constexpr OpDefinition kOps[] = {
    {"Add", add}, {"Mul", mul}, {"Scale", scale}, {"Softcap", softcap}, {"Glu", glu},
};

}  // namespace

const OpFamily kElementwiseOps = kOps;

}  // namespace puna
