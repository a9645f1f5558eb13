#include <algorithm>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

// Over consecutive groups, each as long as a row of the weight, whose rows take turns.
void rms_norm(ProgramBuilder& builder, const OpCall& call) {
  call.expect(1, 1, 1);
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x);
  builder.expect_width(out, width);
  const float eps = call.number("eps");
  require(eps >= 0, "RmsNorm.eps is negative");
  const Weight shape = builder.plan().file->weight(call.tensor(0));
  const int64_t group = shape.cols, size = group * shape.rows;
  require(width % size == 0, "tensor " + call.tensor(0) + ": groups of " + text(size) +
                                 " do not divide a width of " + text(width));
  const float* weight = builder.values(call.tensor(0), size);
  const auto run = [=](const RowRun& row) {
    const int64_t begin = row.first(width / group) * group, end = begin + row.count(width / group) * group;
    for (int64_t i = begin; i < end; i += group)
      row.kernels.rms_norm(row.at(x) + i, weight + i % size, eps, group, row.at(out) + i);
  };
  builder.append(builder.token_stage(builder.domain(x)), {{x}, out, width / group, run});
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

constexpr OpDefinition kOps[] = {{"RmsNorm", rms_norm}, {"L2Norm", l2_norm}};

}  // namespace

const OpFamily kNormOps = kOps;

}  // namespace puna
