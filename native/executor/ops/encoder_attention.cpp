// Attention among all tokens of a text.
#include <algorithm>
#include <cmath>

#include "executor/check.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Of each head, in base 2: 2^-(i b / n) for the i-th of n heads, n the largest power of 2 that there are, and
// in between for the others (Press et al., 2021).
const float* alibi_slopes(ProgramBuilder& builder, int num_heads, float largest) {
  int power = 1;
  while (power * 2 <= num_heads) power *= 2;
  const float base = std::exp2(-largest / static_cast<float>(power));
  const float between = std::exp2(-largest / 2.0f / static_cast<float>(power));
  std::vector<float> slopes;
  for (int head = 0; head < num_heads; ++head)
    slopes.push_back(kLog2E * (head < power ? std::pow(base, static_cast<float>(head + 1))
                                            : std::pow(between, static_cast<float>(2 * (head - power) + 1))));
  return builder.constant(slopes);
}

// Of a key so many tokens behind a query. buckets: those of keys behind, or of the others.
int64_t bucket_of(int64_t distance, int64_t buckets) {
  const int64_t near = buckets / 2, away = std::abs(distance), first = distance > 0 ? buckets : 0;
  if (away < near) return first + away;
  const float share = std::log(static_cast<float>(away) / static_cast<float>(near)) /
                      std::log(static_cast<float>(kMostDistance) / static_cast<float>(near));
  const auto range = static_cast<int64_t>(share * static_cast<float>(buckets - near));
  return first + std::min(near + range, buckets - 1);
}

const float* bias_by_distance(ProgramBuilder& builder, const std::string& name, int num_heads) {
  const int64_t rows = builder.weight(name).rows, buckets = rows / 2;
  require(rows % 2 == 0 && buckets >= 2 && buckets / 2 < kMostDistance,
          "tensor " + name + " has " + text(rows) + " buckets of distances");
  builder.matrix(name, num_heads, rows);
  const float* values = builder.values(name, num_heads * rows);
  std::vector<float> bias;
  for (int head = 0; head < num_heads; ++head)
    for (int64_t d = -kMostDistance; d <= kMostDistance; ++d)
      bias.push_back(kLog2E * values[bucket_of(d, buckets) * num_heads + head]);
  return builder.constant(bias);
}

void encoder_attention(ProgramBuilder& builder, const OpCall& call) {
  call.expect(3, 1, std::min(call.tensors.size(), size_t{1}));
  const int q = call.inputs[0], k = call.inputs[1], v = call.inputs[2], out = call.outputs[0];
  const auto num_heads = static_cast<int>(call.integer("num_heads", 1, kMaxHeads));
  const auto num_kv_heads = static_cast<int>(call.integer("num_kv_heads", 1, num_heads));
  const auto head_dim = static_cast<int>(call.integer("head_dim", 1, kMaxHeadDim));
  require(num_heads % num_kv_heads == 0,
          text(num_heads) + " heads cannot be shared out over " + text(num_kv_heads) + " KV heads");
  for (const int buffer : {q, out}) builder.expect_width(buffer, int64_t{num_heads} * head_dim);
  for (const int input : {k, v}) builder.expect_width(input, int64_t{num_kv_heads} * head_dim);
  for (const int input : call.inputs) require(out != input, "attention cannot write over its input");
  require(builder.common_domain(call.inputs) == Domain::kTokens, "attention after the choice of rows");
  const int64_t window = call.integer("window", 0, INT32_MAX);
  const float alibi = call.number("alibi");
  require(alibi >= 0, "EncoderAttention.alibi is negative");
  require(alibi == 0 || call.tensors.empty(), "scores gain by distance in two ways");
  const int at = builder.add_stage(EncoderAttentionStage{
      .num_heads = num_heads,
      .num_kv_heads = num_kv_heads,
      .head_dim = head_dim,
      .scale = call.number("scale"),
      .window = window == 0 ? -1 : window / 2,
      .by_distance = call.tensors.empty() ? nullptr : bias_by_distance(builder, call.tensor(0), num_heads),
      .slopes = alibi == 0 ? nullptr : alibi_slopes(builder, num_heads, alibi),
      .q = q,
      .k = k,
      .v = v,
      .out = out,
  });
  builder.plan().is_encoder = true;
  for (const int input : call.inputs) builder.read(input, at);
  builder.write(out, Domain::kTokens, at, {});
}

constexpr OpDefinition kEncoderDefinitions[] = {{"EncoderAttention", encoder_attention}};

}  // namespace

const OpFamily kEncoderOps = kEncoderDefinitions;

}  // namespace puna
