#include "executor/experts/routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace puna {
namespace {

// The places of the `count` largest values, the largest first, of equal ones the first.
void find_largest(const float* values, int num_values, int count, int32_t* places) {
  int found = 0;
  for (int i = 0; i < num_values; ++i) {
    if (found == count && !(values[i] > values[places[count - 1]])) continue;
    int at = found < count ? found++ : count - 1;
    for (; at > 0 && values[i] > values[places[at - 1]]; --at) places[at] = places[at - 1];
    places[at] = i;
  }
}

void softmax(const float* x, int n, float* out) {
  const float largest = *std::max_element(x, x + n);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += out[i] = std::exp(x[i] - largest);
  for (int i = 0; i < n; ++i) out[i] /= sum;
}

void score(RouterScores scores, const float* logits, int n, float* out) {
  switch (scores) {
    case RouterScores::kSoftmax:
      return softmax(logits, n, out);
    case RouterScores::kSigmoid:
      for (int i = 0; i < n; ++i) out[i] = 1.0f / (1.0f + std::exp(-logits[i]));
      return;
    case RouterScores::kChosenSoftmax:
      std::copy(logits, logits + n, out);
  }
}

// Only the experts of the best groups keep a rank that can be chosen.
void exclude_groups(const Routing& routing, float* ranks) {
  const int size = routing.num_experts / routing.num_groups;
  std::array<float, kMaxExperts> groups;
  std::array<int32_t, kMaxExperts> best;
  for (int g = 0; g < routing.num_groups; ++g) {
    int32_t top[2];
    find_largest(ranks + g * size, size, 2, top);
    groups[static_cast<size_t>(g)] = ranks[g * size + top[0]] + ranks[g * size + top[1]];
  }
  find_largest(groups.data(), routing.num_groups, routing.num_groups_used, best.data());
  for (int g = 0; g < routing.num_groups; ++g) {
    if (std::find(best.begin(), best.begin() + routing.num_groups_used, g) ==
        best.begin() + routing.num_groups_used)
      std::fill_n(ranks + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace

void choose_experts(const Routing& routing, const float* logits, int32_t* experts, float* weights) {
  constexpr float kSmallestSum = 6.103515625e-5f;  // the smallest normal half float, as llama.cpp has it
  const int n = routing.num_experts, used = routing.num_used;
  std::array<float, kMaxExperts> scores, ranks;
  score(routing.scores, logits, n, scores.data());
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    ranks[at] = routing.choice_bias == nullptr ? scores[at] : scores[at] + routing.choice_bias[i];
  }
  if (routing.num_groups > 1) exclude_groups(routing, ranks.data());
  find_largest(ranks.data(), n, used, experts);
  for (int i = 0; i < used; ++i) weights[i] = scores[static_cast<size_t>(experts[i])];
  if (routing.scores == RouterScores::kChosenSoftmax) softmax(weights, used, weights);
  float divisor = 1;
  if (routing.normalized) {
    float sum = 0;
    for (int i = 0; i < used; ++i) sum += weights[i];
    divisor = std::max(sum, kSmallestSum);
  }
  for (int i = 0; i < used; ++i) {
    weights[i] = weights[i] / divisor * routing.scale;
    if (routing.expert_scales != nullptr) weights[i] *= routing.expert_scales[experts[i]];
  }
}

}  // namespace puna
