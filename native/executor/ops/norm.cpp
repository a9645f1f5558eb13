#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// Over consecutive groups, each as long as the weight.
void rms_norm(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  const float eps = call.number("eps");
  require(eps >= 0, "RmsNorm.eps is negative");
  const auto [weight, group] = builder.vector(call.tensor(0));
  require(width % group == 0, "tensor " + call.tensor(0) + ": groups of " + text(group) +
                                  " do not divide a width of " + text(width));
  const auto run = [=, weight = weight, group = group](const RowRun& row) {
    const int64_t begin = row.first(width / group) * group, end = begin + row.count(width / group) * group;
    for (int64_t i = begin; i < end; i += group)
      row.kernels.rms_norm(row.at(x) + i, weight, eps, group, row.at(out) + i);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, width / group, run});
}

constexpr OpDefinition kOps[] = {{"RmsNorm", rms_norm}};

}  // namespace

const OpFamily kNormOps = kOps;

}  // namespace puna
