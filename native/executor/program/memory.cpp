// Which activations share memory.
#include <algorithm>

#include "executor/program/builder.h"

namespace puna {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned_bytes(const Buffer& buffer) {
  return (buffer.row_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// No thread waits for others behind a replicated stage, or one that is left out: while one still reads there,
// another is at the next stage.
void keep_until_barrier(const Plan& plan, Buffer& buffer) {
  const auto has_barrier = [&](int index) {
    const Stage& stage = plan.stages[static_cast<size_t>(index)];
    const auto* tokens = std::get_if<TokenStage>(&stage);
    return !(tokens != nullptr && tokens->replicated) && !std::holds_alternative<AdapterStage>(stage);
  };
  const int last = static_cast<int>(plan.stages.size()) - 1;
  while (buffer.last_stage < last && !has_barrier(buffer.last_stage)) ++buffer.last_stage;
}

// Whole stages count, not ops within one: at any moment its threads are at different ops.
bool needed_together(const Buffer& a, const Buffer& b) {
  return a.domain == b.domain && a.first_stage <= b.last_stage && b.first_stage <= a.last_stage;
}

// The lowest offset at which the buffer does not touch one of `placed` (sorted by offset).
int64_t first_gap(const Buffer& buffer, const std::vector<const Buffer*>& placed) {
  int64_t offset = 0;
  for (const Buffer* other : placed) {
    if (!needed_together(buffer, *other)) continue;
    if (other->offset - offset >= aligned_bytes(buffer)) break;
    offset = std::max(offset, other->offset + aligned_bytes(*other));
  }
  return offset;
}

}  // namespace

// Greedy, largest first: within a few percent of the most that is needed at one time, for a decoder's shapes.
void place_buffers(Plan& plan) {
  std::vector<Buffer*> order;
  for (Buffer& buffer : plan.buffers) {
    if (!buffer.domain) continue;
    keep_until_barrier(plan, buffer);
    order.push_back(&buffer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Buffer* a, const Buffer* b) { return a->row_bytes > b->row_bytes; });
  std::vector<const Buffer*> placed;
  const auto below = [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; };
  for (Buffer* buffer : order) {
    buffer->offset = first_gap(*buffer, placed);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer, below), buffer);
    int64_t& total = plan.row_bytes[static_cast<size_t>(*buffer->domain)];
    total = std::max(total, buffer->offset + aligned_bytes(*buffer));
  }
}

}  // namespace puna
