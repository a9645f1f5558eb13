// Which experts a token uses, and how much each counts.
#pragma once

#include <cstdint>

namespace puna {

inline constexpr int kMaxExperts = 1024;

enum class RouterScores { kSoftmax, kSigmoid, kChosenSoftmax };

// As puna/graph/ops/experts.py says.
struct Routing {
  RouterScores scores;
  int num_experts, num_used;
  int num_groups, num_groups_used;
  bool normalized;
  float scale;
  const float *choice_bias, *expert_scales;  // [num_experts], or nullptr
};

// experts, weights: [num_used], the highest first. Whatever the logits are, even not numbers, the experts are
// valid, and each is there once.
void choose_experts(const Routing& routing, const float* logits, int32_t* experts, float* weights);

}  // namespace puna
