// Every op there is, named as in puna/graph/ops. A file of this folder has a family of them: what each
// needs to be possible, the stages it becomes, how the work is cut, and how it is done.
#pragma once

#include <span>
#include <string_view>

#include "executor/program/builder.h"

namespace puna {

struct OpDefinition {
  std::string_view name;
  void (*build)(ProgramBuilder& builder, const OpCall& call);
};

using OpFamily = std::span<const OpDefinition>;
extern const OpFamily kAltUpOps, kAttentionOps, kColumnOps, kElementwiseOps, kEncoderOps, kExpertOps,
    kLinearOps, kNormOps, kRecurrenceOps, kRopeOps, kRowOps;

// What ops of several families use.
Gating gating_of(const OpCall& call);  // its activation and, if that has one, its limit
// Of one value.
Activation function_named(const std::string& name);
// The rows of x as kernels for block-quantized weights read them: a buffer.
int quantized_rows(ProgramBuilder& builder, int x);

}  // namespace puna
