// What each op needs to be possible, and the stages it becomes.
#include <algorithm>
#include <cmath>

#include "executor/builder.h"
#include "executor/check.h"

namespace puna {
namespace {

constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  throw Error("unknown activation \"" + name + "\" (silu, gelu, relu)");
}

}  // namespace

void ProgramBuilder::embed(int out, const std::string& name) {
  const Weight weight = plan_.file->weight(name);
  require(weight.cols == at(out).width, "tensor " + name + " has rows of " + text(weight.cols) +
                                            " values where the model needs " + text(at(out).width));
  require_range("the number of tokens", weight.rows, 1, kMaxVocabulary);
  plan_.vocab_size = plan_.vocab_size == 0 ? weight.rows : std::min(plan_.vocab_size, weight.rows);
  const int stage = token_stage(Domain::kTokens);
  write(out, Domain::kTokens, stage, {});
  append(stage, op::Embed{weight, out});
}

void ProgramBuilder::rms_norm(int out, int x, const std::string& name, float eps, int64_t group) {
  const int64_t width = at(x).width;
  floats(out, width);
  require(std::isfinite(eps) && eps >= 0, "the epsilon of norm " + name + " is not a number >= 0");
  require(group >= 1 && width % group == 0,
          "tensor " + name + ": groups of " + text(group) + " do not divide a width of " + text(width));
  const float* weight = vector(name, group);
  const int stage = token_stage(domain(x));
  read(x, stage);
  write(out, domain(x), stage, {x});
  append(stage, op::RmsNorm{weight, eps, group, width / group, x, out});
}

int ProgramBuilder::quantized(int x) {
  if (const auto found = quantized_.find(x); found != quantized_.end()) return found->second;
  const int64_t cols = at(x).width;
  const int out = add_buffer(plan_.kernels->quantized_row_bytes(cols), 0);
  const int stage = token_stage(domain(x));
  read(x, stage);
  write(out, domain(x), stage, {x});
  append(stage, op::Quantize{cols, x, out});
  quantized_[x] = out;
  return out;
}

void ProgramBuilder::linear(int x, const std::vector<int>& outs, const std::vector<std::string>& weights,
                            const std::vector<std::optional<std::string>>& biases,
                            std::optional<int> residual) {
  require(!outs.empty() && outs.size() == weights.size() && outs.size() == biases.size(),
          "linear needs as many outputs and biases as weights, at least one");
  require(!residual || outs.size() == 1, "linear adds a residual to one output only");
  LinearStage stage{.domain = domain(x), .parts = {}};
  for (size_t i = 0; i < outs.size(); ++i) {
    const int64_t rows = at(outs[i]).width;
    LinearPart part{.weight = matrix(weights[i], at(x).width, rows),
                    .bias = biases[i] ? vector(*biases[i], rows) : nullptr,
                    .x = x,
                    .out = outs[i],
                    .residual = residual.value_or(-1)};
    for (size_t j = 0; j < i; ++j) require(outs[j] != outs[i], "linear writes one output twice");
    require(outs[i] != x, "linear cannot write over its input");
    if (needs_quantized_input(part.weight.type)) part.x = quantized(x);
    stage.parts.push_back(part);
  }
  for (const LinearPart& part : stage.parts) {
    read(part.x, next_stage());
    if (residual) {
      floats(*residual, part.weight.rows);
      require(domain(*residual) == stage.domain, "the residual has other rows than linear's input");
      read(*residual, next_stage());
    }
    write(part.out, stage.domain, next_stage(), {x, residual.value_or(x)});
  }
  plan_.stages.emplace_back(std::move(stage));
}

ProgramBuilder::RopeTable ProgramBuilder::rope_table(std::span<const float> inv_freq, float scale) {
  std::pair<std::vector<float>, float> key{{inv_freq.begin(), inv_freq.end()}, scale};
  if (const auto found = rope_tables_.find(key); found != rope_tables_.end()) return found->second;
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  auto values = std::make_unique<float[]>(inv_freq.size());
  std::copy(inv_freq.begin(), inv_freq.end(), values.get());
  const float* constant = plan_.constants.emplace_back(std::move(values)).get();
  const int out = add_buffer(2 * half * static_cast<int64_t>(sizeof(float)), 0);
  constexpr int stage = 0;  // what embeds the tokens: there is one, since something has been written
  write(out, Domain::kTokens, stage, {});
  append(stage, op::RopeTable{constant, half, scale, out});
  return rope_tables_.emplace(std::move(key), RopeTable{out, constant}).first->second;
}

void ProgramBuilder::rope(int x, int num_heads, int head_dim, const std::string& style,
                          std::span<const float> inv_freq, float scale) {
  require_range("the number of heads", num_heads, 1, kMaxHeads);
  require_range("the head dimension", head_dim, 1, kMaxHeads);
  floats(x, static_cast<int64_t>(num_heads) * head_dim);
  const int64_t rotary_dim = 2 * static_cast<int64_t>(inv_freq.size());
  require(rotary_dim >= 2 && rotary_dim <= head_dim,
          text(inv_freq.size()) + " rotary frequencies do not fit a head of " + text(head_dim));
  for (const float frequency : inv_freq)
    require(std::isfinite(frequency), "a rotary frequency is not finite");
  require(std::isfinite(scale), "the scale of a rotation is not finite");
  require(style == "normal" || style == "neox", "unknown rotation \"" + style + "\" (normal, neox)");
  require(domain(x) == Domain::kTokens, "rotation after the choice of rows");
  const RopeTable table = rope_table(inv_freq, scale);
  const auto rotate = style == "neox" ? plan_.kernels->rope_neox : plan_.kernels->rope_normal;
  const int stage = token_stage(Domain::kTokens);
  read(table.buffer, stage);
  write(x, Domain::kTokens, stage, {x});
  turned_.try_emplace(x, KeyRotation{rotate, num_heads, head_dim, rotary_dim, table.inv_freq});
  append(stage, op::Rope{rotate, num_heads, head_dim, rotary_dim, x, table.buffer});
}

void ProgramBuilder::add_layer(int layer, int num_kv_heads, int head_dim, int64_t window, int k, int v) {
  require_range("the layer of an attention", layer, 0, kMaxHeads);
  KvLayer kv{num_kv_heads, head_dim, window, kv_layout(plan_.kv_type, num_kv_heads, head_dim), {}};
  const auto turned = turned_.find(k);
  if (turned != turned_.end()) kv.rotation = turned->second;
  if ((turned != turned_.end() && !turned->second) || turned_.contains(v)) plan_.can_shift = false;
  require(layers_.emplace(layer, kv).second, "layer " + text(layer) + " has two attentions");
}

void ProgramBuilder::attention(int out, int q, int k, int v, int layer, int num_heads, int num_kv_heads,
                               int head_dim, float scale, float softcap, int64_t window,
                               const std::optional<std::string>& sinks) {
  require_range("the number of heads", num_heads, 1, kMaxHeads);
  require_range("the number of KV heads", num_kv_heads, 1, num_heads);
  require_range("the head dimension", head_dim, 1, kMaxHeadDim);
  require(num_heads % num_kv_heads == 0,
          text(num_heads) + " heads cannot be shared out over " + text(num_kv_heads) + " KV heads");
  require(std::isfinite(scale), "the scale of an attention is not finite");
  require(std::isfinite(softcap) && softcap >= 0, "the soft cap of an attention is not a number >= 0");
  require(window >= 0, "the window of an attention is negative");
  const int64_t q_width = int64_t{num_heads} * head_dim, kv_width = int64_t{num_kv_heads} * head_dim;
  floats(q, q_width), floats(out, q_width), floats(k, kv_width), floats(v, kv_width);
  require(out != q && out != k && out != v, "attention cannot write over its input");
  add_layer(layer, num_kv_heads, head_dim, window, k, v);
  for (const int input : {q, k, v}) {
    require(domain(input) == Domain::kTokens, "attention after the choice of rows");
  }
  const int store = token_stage(Domain::kTokens);
  read(k, store), read(v, store);
  append(store, op::StoreKv{layer, num_kv_heads, head_dim, k, v});
  read(q, next_stage());
  write(out, Domain::kTokens, next_stage(), {});  // where tokens are shows in how far apart they are
  plan_.stages.emplace_back(AttentionStage{layer, num_heads, num_kv_heads, head_dim, scale, softcap, window,
                                           sinks ? vector(*sinks, num_heads) : nullptr, q, out});
}

void ProgramBuilder::glu(int out, int gate, int up, const std::string& activation) {
  const int64_t width = at(out).width;
  floats(gate, width), floats(up, width);
  const Activation function = activation_named(activation);
  require(domain(gate) == domain(up), "gate and up have different rows");
  const int stage = token_stage(domain(gate));
  read(gate, stage), read(up, stage);
  write(out, domain(gate), stage, {gate, up});
  append(stage, op::Glu{function, width, gate, up, out});
}

void ProgramBuilder::binary(decltype(Kernels::add) function, int out, int a, int b) {
  const int64_t width = at(out).width;
  floats(a, width), floats(b, width);
  require(domain(a) == domain(b), "buffers " + text(a) + " and " + text(b) + " have different rows");
  const int stage = token_stage(domain(a));
  read(a, stage), read(b, stage);
  write(out, domain(a), stage, {a, b});
  append(stage, op::Binary{function, width, a, b, out});
}

void ProgramBuilder::unary(decltype(Kernels::scale) function, int out, int x, float parameter) {
  const int64_t width = at(out).width;
  floats(x, width);
  const int stage = token_stage(domain(x));
  read(x, stage);
  write(out, domain(x), stage, {x});
  append(stage, op::Unary{function, parameter, width, x, out});
}

void ProgramBuilder::add(int out, int a, int b) { binary(plan_.kernels->add, out, a, b); }
void ProgramBuilder::mul(int out, int a, int b) { binary(plan_.kernels->mul, out, a, b); }

void ProgramBuilder::scale(int out, int x, float factor) {
  require(std::isfinite(factor), "a scale factor is not finite");
  unary(plan_.kernels->scale, out, x, factor);
}

void ProgramBuilder::softcap(int out, int x, float cap) {
  require(std::isfinite(cap) && cap > 0, "a soft cap is not a number > 0");
  unary(plan_.kernels->softcap, out, x, cap);
}

void ProgramBuilder::rows(int out, int x) {
  floats(out, at(x).width);
  require(domain(x) == Domain::kTokens, "the rows have been chosen already");
  const int stage = token_stage(Domain::kRows);
  read(x, stage);
  write(out, Domain::kRows, stage, {x});
  append(stage, op::GatherRows{x, out});
}

}  // namespace puna
