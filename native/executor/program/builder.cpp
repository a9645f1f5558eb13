#include "executor/program/builder.h"

#include <algorithm>
#include <set>

#include "executor/check.h"
#include "executor/ops/ops.h"

namespace puna {
namespace {

// Several times those of any real model. There is a row of a buffer for every token of a step, or for every
// token that is sampled.
constexpr int64_t kMaxTokenWidth = int64_t{1} << 18;
constexpr int64_t kMaxRowWidth = int64_t{1} << 22;

}  // namespace

ProgramBuilder::ProgramBuilder(std::shared_ptr<GgufFile> file, const std::string& isa,
                               const std::string& kv_type) {
  plan_.file = std::move(file);
  plan_.kernels = &select_kernels(isa.c_str());
  plan_.kv_type = kv_type_named(kv_type);
}

void ProgramBuilder::op(const OpCall& call) {
  for (const OpFamily family : {kAltUpOps, kAttentionOps, kColumnOps, kElementwiseOps, kEncoderOps,
                                kExpertOps, kLinearOps, kNormOps, kRecurrenceOps, kRopeOps, kRowOps}) {
    for (const OpDefinition& definition : family)
      if (definition.name == call.name) return definition.build(*this, call);
  }
  throw Error("there is no op " + call.name);
}

// --- buffers and stages ---

int ProgramBuilder::buffer(int64_t width) {
  require_range("the width of a buffer", width, 1, kMaxRowWidth);
  const int buffer = scratch(width * static_cast<int64_t>(sizeof(float)));
  at(buffer).width = width;
  return buffer;
}

int ProgramBuilder::scratch(int64_t row_bytes) {
  plan_.buffers.push_back({.row_bytes = row_bytes});
  return static_cast<int>(plan_.buffers.size()) - 1;
}

int ProgramBuilder::copy_of(int buffer, const std::function<int()>& make, int kind) {
  const auto found = copies_.find({buffer, kind});
  return found != copies_.end() ? found->second : copies_[{buffer, kind}] = make();
}

Buffer& ProgramBuilder::at(int buffer) {
  require(buffer >= 0 && buffer < static_cast<int>(plan_.buffers.size()),
          "there is no buffer " + text(buffer));
  return plan_.buffers[static_cast<size_t>(buffer)];
}

void ProgramBuilder::expect_width(int buffer, int64_t width) {
  require(at(buffer).width == width, "buffer " + text(buffer) + " is " + text(at(buffer).width) +
                                         " wide where " + text(width) + " are needed");
}

Domain ProgramBuilder::domain(int buffer) {
  const Buffer& b = at(buffer);
  require(b.domain.has_value(), "buffer " + text(buffer) + " is read before it is written");
  return *b.domain;
}

Domain ProgramBuilder::common_domain(std::span<const int> buffers) {
  const Domain first = domain(buffers[0]);
  for (const int buffer : buffers) {
    require(domain(buffer) == first,
            "buffers " + text(buffers[0]) + " and " + text(buffer) + " have different rows");
  }
  return first;
}

void ProgramBuilder::read(int buffer, int stage) { at(buffer).last_stage = stage; }

void ProgramBuilder::write(int buffer, Domain domain, int stage, std::span<const int> inputs) {
  Buffer& b = at(buffer);
  require(b.domain.value_or(domain) == domain,
          "buffer " + text(buffer) + " holds some rows of a step and is to hold others");
  if (domain == Domain::kTokens) require_range("the width of a token's values", b.width, 0, kMaxTokenWidth);
  if (b.first_stage < 0) b.first_stage = stage;
  b.domain = domain;
  b.last_stage = b.last_writer = stage;
  copies_.erase(copies_.lower_bound({buffer, 0}), copies_.lower_bound({buffer + 1, 0}));
  const auto is_turned = [this](int input) { return turned_.contains(input); };
  if (std::any_of(inputs.begin(), inputs.end(), is_turned)) {
    turned_[buffer] = std::nullopt;
  } else {
    turned_.erase(buffer);
  }
}

int ProgramBuilder::token_stage(Domain domain) {
  const bool begins = plan_.stages.size() == (plan_.prediction ? plan_.prediction->begin : 0);
  const auto* last = begins ? nullptr : std::get_if<TokenStage>(&plan_.stages.back());
  if (last != nullptr && last->domain == domain) return static_cast<int>(plan_.stages.size()) - 1;
  return add_stage(TokenStage{domain, {}});
}

void ProgramBuilder::append(int token_stage, TokenOp op) {
  auto& stage = std::get<TokenStage>(plan_.stages[static_cast<size_t>(token_stage)]);
  for (const int input : op.inputs) read(input, token_stage);
  if (op.out != kNoBuffer) write(op.out, stage.domain, token_stage, op.inputs);
  stage.ops.push_back(std::move(op));
}

int ProgramBuilder::add_stage(Stage stage) {
  plan_.stages.push_back(std::move(stage));
  return static_cast<int>(plan_.stages.size()) - 1;
}

void ProgramBuilder::set_rotation(int buffer, const KeyRotation& rotation) {
  turned_.try_emplace(buffer, rotation);  // turned twice: in no way that is known
}

int ProgramBuilder::add_layer(int layer, int num_kv_heads, int head_dim, int64_t window, int k, int v) {
  const KvLayout layout = kv_layout(plan_.kv_type, num_kv_heads, head_dim);
  KvLayer kv{num_kv_heads, head_dim, v == kNoBuffer, window, layout, {}};
  const auto turned = turned_.find(k);
  if (turned != turned_.end()) kv.rotation = turned->second;
  if ((turned != turned_.end() && !turned->second) || turned_.contains(v)) plan_.can_shift = false;
  const auto place = static_cast<int>(plan_.layers.size());
  require(attention_layers_.emplace(layer, place).second, "layer " + text(layer) + " has two attentions");
  plan_.layers.push_back(kv);
  return place;
}

int ProgramBuilder::place_of(int layer) const {
  const auto found = attention_layers_.find(layer);
  require(found != attention_layers_.end(), "layer " + text(layer) + " keeps no keys and values");
  return found->second;
}

int64_t ProgramBuilder::add_state(int layer, int64_t num_values) {
  constexpr int64_t kAlignment = 64, kMostBytes = int64_t{1} << 40;
  require_range("the size of a state", num_values, 1, kMostBytes);
  const int64_t offset = state_bytes_;
  state_bytes_ +=
      (num_values * static_cast<int64_t>(sizeof(float)) + kAlignment - 1) / kAlignment * kAlignment;
  require_range("the size of all states", state_bytes_, 1, kMostBytes);
  recurrent_layers_.insert(layer);
  plan_.can_shift = false;
  return offset;
}

// --- tensors ---

Weight ProgramBuilder::weight(const std::string& name) const {
  if (!plan_.drafter || !name.starts_with(kOfDrafter)) return plan_.file->weight(name);
  return plan_.drafter->weight(name.substr(kOfDrafter.size()));
}

WeightStack ProgramBuilder::weights(const std::string& name) const {
  if (!plan_.drafter || !name.starts_with(kOfDrafter)) return plan_.file->weights(name);
  return plan_.drafter->weights(name.substr(kOfDrafter.size()));
}

Weight ProgramBuilder::matrix(const std::string& name, int64_t cols, int64_t rows) const {
  const Weight weight = this->weight(name);
  require(weight.cols == cols && weight.rows == rows,
          "tensor " + name + " has shape [" + text(weight.cols) + ", " + text(weight.rows) +
              "] where the model needs [" + text(cols) + ", " + text(rows) + "]");
  return weight;
}

WeightStack ProgramBuilder::matrices(const std::string& name, int64_t cols, int64_t rows,
                                     int64_t count) const {
  const WeightStack stack = weights(name);
  require(stack.first.cols == cols && stack.first.rows == rows && stack.count == count,
          "tensor " + name + " has shape [" + text(stack.first.cols) + ", " + text(stack.first.rows) + ", " +
              text(stack.count) + "] where the model needs [" + text(cols) + ", " + text(rows) + ", " +
              text(count) + "]");
  return stack;
}

int ProgramBuilder::adapter_site(const std::string& tensor, const Weight& weight, bool is_embedding) {
  const auto is_its = [&](const AdapterSite& site) { return site.tensor == tensor; };
  auto found = std::find_if(plan_.sites.begin(), plan_.sites.end(), is_its);
  if (found == plan_.sites.end())
    found = plan_.sites.insert(found, {.tensor = tensor, .rows = weight.rows, .cols = weight.cols});
  (is_embedding ? found->is_embedding : found->is_linear) = true;
  return static_cast<int>(found - plan_.sites.begin());
}

const float* ProgramBuilder::vector(const std::string& name, int64_t size) {
  matrix(name, size, 1);
  return values(name, size);
}

const float* ProgramBuilder::values(const std::string& name, int64_t count) {
  const Weight weight = this->weight(name);
  require(weight.cols * weight.rows == count, "tensor " + name + " has " + text(weight.cols * weight.rows) +
                                                  " values where the model needs " + text(count));
  require(is_float(weight.type),
          "tensor " + name + " is " + type_name(weight.type) + " where the model needs F32, F16 or BF16");
  auto copy = std::make_unique<float[]>(static_cast<size_t>(count));
  dequantize(weight.type, weight.data, copy.get(), count);
  return plan_.constants.emplace_back(std::move(copy)).get();
}

const float* ProgramBuilder::constant(std::span<const float> values) {
  auto copy = std::make_unique<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  return plan_.constants.emplace_back(std::move(copy)).get();
}

// Of stages [begin, end), which one run goes through.
void ProgramBuilder::link_linear_stages(size_t begin, size_t end) {
  size_t next = begin;
  while (next < end && !std::holds_alternative<LinearStage>(plan_.stages[next])) ++next;
  if (next == end) next = plan_.stages.size();  // there is none
  for (size_t i = end; i-- > begin;) {
    if (auto* experts = std::get_if<ExpertStage>(&plan_.stages[i])) experts->next = next;
    if (auto* linear = std::get_if<LinearStage>(&plan_.stages[i])) linear->next = std::exchange(next, i);
  }
}

void ProgramBuilder::place_layers(bool by_window) {
  const auto window_of = [&](const KvLayer& layer) { return by_window ? layer.window : 0; };
  std::set<int64_t> windows;
  for (const KvLayer& layer : plan_.layers) windows.insert(window_of(layer));
  if (windows.erase(0) > 0) plan_.groups.push_back({.window = 0});
  for (auto window = windows.rbegin(); window != windows.rend(); ++window)
    plan_.groups.push_back({.window = *window});
  for (KvLayer& layer : plan_.layers) {
    const auto has_window = [&](const KvGroup& group) { return group.window == window_of(layer); };
    const auto group = std::find_if(plan_.groups.begin(), plan_.groups.end(), has_window);
    layer.group = static_cast<int>(group - plan_.groups.begin());
    layer.k_offset = group->block_bytes;
    layer.v_offset = layer.k_offset + (layer.is_latent ? 0 : layer.layout.bytes);
    group->block_bytes = layer.v_offset + layer.layout.bytes;
    ++group->num_layers;
  }
  if (recurrent_layers_.empty()) return;
  plan_.groups.push_back({.window = 0,
                          .num_layers = static_cast<int>(recurrent_layers_.size()),
                          .block_bytes = state_bytes_,
                          .is_state = true});
}

// Of a table that no product reads, a step needs a few rows that lie anywhere.
void ProgramBuilder::expect_random_rows() const {
  for (const AdapterSite& site : plan_.sites) {
    if (!site.is_embedding || site.is_linear) continue;
    const Weight table = weight(site.tensor);
    const auto bytes = static_cast<size_t>(table.rows) * table.row_bytes;
    expect_random_reads(table.data, bytes, true);
  }
}

void ProgramBuilder::read_result(int result, int hidden, size_t end) {
  require(at(result).width > 0 && at(result).domain.value_or(Domain::kTokens) != Domain::kTokens,
          "the result, buffer " + text(result) + ", does not hold the chosen rows");
  require(hidden == kNoBuffer || (at(hidden).width > 0 && at(hidden).domain == Domain::kRows),
          "hidden states, buffer " + text(hidden) + ", are not of the chosen rows");
  read(result, static_cast<int>(end));
  if (hidden != kNoBuffer) read(hidden, static_cast<int>(end));
}

void ProgramBuilder::begin_prediction(std::shared_ptr<GgufFile> drafter) {
  require(!plan_.prediction, "there is a prediction head already");
  const size_t begin = plan_.stages.size();
  plan_.prediction = {
      .begin = begin, .attention = begin, .result = kNoBuffer, .hidden = kNoBuffer, .keeps = false};
  plan_.drafter = std::move(drafter);
  num_model_layers_ = plan_.layers.size();
  rope_tables.clear();  // a run of the head has positions of its own
}

void ProgramBuilder::end_prediction(int result, int hidden) {
  require(plan_.prediction.has_value(), "there is no prediction head");
  PredictionPlan& prediction = *plan_.prediction;
  read_result(result, hidden, plan_.stages.size());
  prediction.result = result;
  prediction.hidden = hidden;
  prediction.keeps = plan_.layers.size() > num_model_layers_;
  size_t num_attentions = 0;
  for (size_t i = prediction.begin; i < plan_.stages.size(); ++i) {
    require(!std::holds_alternative<RecurrenceStage>(plan_.stages[i]), "a prediction head keeps a state");
    const auto* attention = std::get_if<AttentionStage>(&plan_.stages[i]);
    if (attention == nullptr || !prediction.keeps) continue;
    require(attention->window == 0, "a prediction head's attention has a window");
    prediction.attention = i;
    ++num_attentions;
  }
  require(num_attentions == 1 || !prediction.keeps,
          "a prediction head has " + text(num_attentions) + " attentions instead of 1");
}

// Its layer is in the first group, since it has no window.
void ProgramBuilder::check_prediction() {
  if (!plan_.prediction) return;
  const PredictionPlan& prediction = *plan_.prediction;
  require(prediction.result != kNoBuffer && prediction.hidden != kNoBuffer && plan_.hidden != kNoBuffer,
          "a prediction head without results");
  expect_width(prediction.hidden, width(plan_.hidden));
  expect_width(prediction.result, width(plan_.result));
}

std::shared_ptr<Program> ProgramBuilder::build(int result, bool by_window, int hidden) {
  const size_t end = plan_.num_model_stages();
  read_result(result, hidden, end);
  plan_.hidden = hidden;
  plan_.result = result;
  check_prediction();
  place_layers(by_window);
  plan_.check_files();
  expect_random_rows();
  link_linear_stages(0, end);
  link_linear_stages(end, plan_.stages.size());
  share_out_token_stages(plan_);
  place_buffers(plan_);
  return std::make_shared<Program>(std::move(plan_));
}

}  // namespace puna
