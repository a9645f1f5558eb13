// A feed-forward part of which each token uses a few experts, as the stages that run it know it.
//
// A token's use of one of its experts is a *visit*. Visits are ordered by expert, and by token for each: so
// that an expert's weights meet all of its tokens at once. What a visit gives depends on its token alone, and
// a token's visits are summed up in the order in which its experts were chosen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "quants/types.h"

namespace puna {

// One of the matrices of every expert, and its bias.
struct ExpertWeights {
  WeightStack stack;
  const float* bias;    // [experts, rows of bias], or nullptr
  int64_t bias_stride;  // from one expert's to the next

  int64_t rows() const { return stack.first.rows; }
  // Rows [begin, begin + count) of an expert's matrix.
  Weight rows_of(int64_t expert, int64_t begin, int64_t count) const {
    Weight weight = stack.at(expert);
    weight.data = weight.row(begin);
    weight.rows = count;
    return weight;
  }
  const float* bias_of(int64_t expert, int64_t row) const {
    return bias == nullptr ? nullptr : bias + expert * bias_stride + row;
  }
};

struct ExpertLayer {
  int64_t num_experts, num_used;
  ExpertWeights gate, up, down;
  bool is_gated;      // if not, gate is all there is before down
  Gating gating;      // its activation alone if there is no gate
  bool weighs_input;  // a visit's weight is a factor of what its expert gets, not of what it gives

  // Buffers. Those of visits have num_used for each row, and are used from the first row's on.
  int gate_x, up_x;
  int choices;          // of a row: int32 experts [num_used], then float weights [num_used]
  int runs;             // ExpertRun: see ExpertStep
  int row_of_visit;     // int32
  int visit_of_choice;  // of a row: int32 [num_used]
  int hidden;           // what `down` reads of each visit
  int64_t hidden_bytes;
  int out;

  int64_t width() const { return down.rows(); }
  int64_t num_hidden() const { return gate.rows(); }
};

}  // namespace puna
