// Experts: routing is a token's own matter; then come the stages of experts/expert_step.h.
#include <string>

#include "executor/check.h"
#include "executor/experts/expert_step.h"
#include "executor/experts/routing.h"
#include "executor/ops/ops.h"
#include "executor/step.h"

namespace puna {
namespace {

enum Tensor : size_t { kGate, kUp, kDown, kGateBias, kUpBias, kDownBias, kChoiceBias, kDownScale, kTensors };

// Of a token's experts together: several times those of any real model.
constexpr int64_t kMaxHidden = int64_t{1} << 18;

RouterScores scores_named(const std::string& name) {
  if (name == "softmax") return RouterScores::kSoftmax;
  if (name == "sigmoid") return RouterScores::kSigmoid;
  if (name == "chosen_softmax") return RouterScores::kChosenSoftmax;
  throw Error("unknown scores of experts \"" + name + "\" (softmax, sigmoid, chosen_softmax)");
}

Routing routing_of(ProgramBuilder& builder, const OpCall& call) {
  const auto integer = [&](const char* key, int64_t low, int64_t high) {
    return static_cast<int>(call.integer(key, low, high));
  };
  const int64_t experts = builder.width(call.inputs[1]);
  require_range("the number of experts", experts, 1, kMaxExperts);
  Routing routing{
      .scores = scores_named(call.text("scores")),
      .num_experts = static_cast<int>(experts),
      .num_used = integer("num_used", 1, experts),
      .num_groups = integer("num_groups", 1, experts),
      .num_groups_used = 1,
      .normalized = call.integer("normalized", 0, 1) == 1,
      .scale = call.number("scale"),
      .choice_bias = nullptr,
      .expert_scales = nullptr,
  };
  routing.num_groups_used = integer("num_groups_used", 1, routing.num_groups);
  const int group = routing.num_experts / routing.num_groups;
  require(routing.num_groups == 1 || (group * routing.num_groups == routing.num_experts && group > 1),
          text(experts) + " experts cannot be in " + text(routing.num_groups) + " groups of several");
  require(routing.num_used <= group * routing.num_groups_used,
          text(routing.num_used) + " experts cannot be chosen from " + text(routing.num_groups_used) +
              " groups of " + text(group));
  if (call.tensors[kChoiceBias])
    routing.choice_bias = builder.vector(call.tensor(kChoiceBias), routing.num_experts);
  if (call.tensors[kDownScale])
    routing.expert_scales = builder.vector(call.tensor(kDownScale), routing.num_experts);
  return routing;
}

const float* bias_of(ProgramBuilder& builder, const OpCall& call, Tensor index, int64_t rows,
                     int64_t experts) {
  if (!call.tensors[index]) return nullptr;
  builder.matrix(call.tensor(index), rows, experts);
  return builder.values(call.tensor(index), rows * experts);
}

// Gate and up may be one tensor, gate's rows first. Where there is no gate, up stands in its place.
void find_gate_and_up(ProgramBuilder& builder, const OpCall& call, int64_t width, ExpertLayer& layer) {
  const bool fused = layer.is_gated && !call.tensors[kUp].has_value();
  const int64_t rows = builder.weights(call.tensor(kGate)).first.rows;
  require(!fused || rows % 2 == 0, "tensor " + call.tensor(kGate) + " has an odd number of rows");
  const auto part = [&](Tensor weights, Tensor bias) {
    return ExpertWeights{builder.matrices(call.tensor(weights), width, rows, layer.num_experts),
                         bias_of(builder, call, bias, rows, layer.num_experts), rows};
  };
  layer.gate = part(kGate, kGateBias);
  layer.up = fused || !layer.is_gated ? layer.gate : part(kUp, kUpBias);
  if (!fused) return;
  layer.gate.stack.first.rows = layer.up.stack.first.rows = rows / 2;
  layer.up.stack.first.data = layer.gate.stack.first.row(rows / 2);
  if (layer.up.bias != nullptr) layer.up.bias += rows / 2;
}

int input_of(ProgramBuilder& builder, const ExpertWeights& weights, int x) {
  return needs_quantized_input(weights.stack.first.type) ? quantized_rows(builder, x) : x;
}

ExpertLayer layer_of(ProgramBuilder& builder, const OpCall& call, int64_t num_used) {
  const int x = call.inputs[0], out = call.outputs[0];
  const int64_t width = builder.width(x), experts = builder.width(call.inputs[1]);
  builder.expect_width(out, width);
  require(out != x && out != call.inputs[1], "experts cannot write over their input");
  ExpertLayer layer{};
  layer.num_experts = experts, layer.num_used = num_used, layer.out = out;
  layer.is_gated = call.integer("gated", 0, 1) == 1;
  layer.weighs_input = call.integer("weighs_input", 0, 1) == 1;
  layer.gating = layer.is_gated ? gating_of(call) : Gating{function_named(call.text("activation")), 0.0f};
  find_gate_and_up(builder, call, width, layer);
  require(!layer.weighs_input || (layer.is_gated && !call.tensors[kGateBias] && !call.tensors[kUpBias]),
          "weights can only be put on inputs of experts with a gate and without biases");
  const int64_t hidden = layer.num_hidden();
  require_range("the hidden values of a token's experts", hidden * num_used, 1, kMaxHidden);
  layer.down = {builder.matrices(call.tensor(kDown), hidden, width, experts),
                bias_of(builder, call, kDownBias, width, experts), width};
  layer.gate_x = input_of(builder, layer.gate, x), layer.up_x = input_of(builder, layer.up, x);
  layer.hidden_bytes = needs_quantized_input(layer.down.stack.first.type)
                           ? builder.kernels().quantized_row_bytes(hidden)
                           : hidden * static_cast<int64_t>(sizeof(float));
  const auto per_visit = [&](int64_t bytes) { return builder.scratch(num_used * bytes); };
  layer.choices = per_visit(sizeof(int32_t) + sizeof(float));
  layer.runs = builder.scratch((num_used + 2) * static_cast<int64_t>(sizeof(ExpertRun)));
  layer.row_of_visit = per_visit(sizeof(int32_t)), layer.visit_of_choice = per_visit(sizeof(int32_t));
  layer.hidden = per_visit(layer.hidden_bytes);
  return layer;
}

void add_stages(ProgramBuilder& builder, Domain domain, const ExpertLayer& layer, const OpCall& call) {
  const auto shared = std::make_shared<const ExpertLayer>(layer);
  const auto add = [&](ExpertPhase phase, std::initializer_list<int> reads,
                       std::initializer_list<int> writes) {
    const int stage = builder.add_stage(ExpertStage{domain, phase, shared});
    for (const int buffer : reads) builder.read(buffer, stage);
    for (const int buffer : writes) builder.write(buffer, domain, stage, call.inputs);
  };
  add(ExpertPhase::kOrderVisits, {layer.choices}, {layer.runs, layer.row_of_visit, layer.visit_of_choice});
  add(ExpertPhase::kGateUp, {layer.gate_x, layer.up_x, layer.runs, layer.row_of_visit}, {layer.hidden});
  add(ExpertPhase::kDown, {layer.choices, layer.runs, layer.visit_of_choice, layer.hidden}, {layer.out});
}

void moe(ProgramBuilder& builder, const OpCall& call) {
  call.expect(2, 1, kTensors);
  const Domain domain = builder.common_domain(call.inputs);
  const Routing routing = routing_of(builder, call);
  const ExpertLayer layer = layer_of(builder, call, routing.num_used);
  const int logits = call.inputs[1];
  const auto run = [=, choices = layer.choices](const RowRun& row) {
    auto* experts = reinterpret_cast<int32_t*>(row.step.bytes(choices, row.row));
    choose_experts(routing, row.at(logits), experts, reinterpret_cast<float*>(experts + routing.num_used));
  };
  builder.append(builder.token_stage(domain), {{logits}, layer.choices, 1, run});
  add_stages(builder, domain, layer, call);
}

constexpr OpDefinition kExpertDefinitions[] = {{"Moe", moe}};

}  // namespace

const OpFamily kExpertOps = kExpertDefinitions;

// --- the stages ---

void run_stage(const Step& step, const ExpertStage& stage, WorkShares& shares) noexcept {
  const ExpertStep experts{step, *stage.layer, step.num_rows(stage.domain)};
  if (experts.num_rows == 0) return;
  switch (stage.phase) {
    case ExpertPhase::kOrderVisits:
      if (step.thread == 0) experts.order_visits();
      return;
    case ExpertPhase::kGateUp:
      return experts.run_gate_up(shares);
    case ExpertPhase::kDown:
      return experts.run_down(shares, first_weights(step, stage.next));
  }
}

}  // namespace puna
