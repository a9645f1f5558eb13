#include "kv/table/sequence_state.h"

#include <utility>

#include "base/assertion.h"

namespace puna {

void SequenceState::adopt(int32_t block, int64_t position) {
  group_->pool.retain(block);
  if (block_ >= 0) group_->pool.release(block_);
  block_ = block;
  position_ = position;
}

void SequenceState::stepped(int64_t num_tokens) {
  if (!exists()) return;
  require(written() >= 0, "a step without a block for its state");
  require(position_ >= 0 && num_tokens > position_, "a step that goes back, to token", num_tokens);
  if (next_ >= 0) {
    if (block_ >= 0) group_->pool.release(block_);
    block_ = std::exchange(next_, -1);
  }
  position_ = num_tokens;
}

void SequenceState::failed() {
  if (!exists()) return;
  if (next_ < 0 && block_ >= 0) {
    release();
    position_ = -1;
  }
}

void SequenceState::truncate(int64_t num_tokens) {
  if (!exists() || (num_tokens > 0 && num_tokens >= position_)) return;
  release();
  position_ = num_tokens == 0 ? 0 : -1;
}

void SequenceState::release() {
  for (int32_t* block : {&block_, &next_})
    if (*block >= 0) group_->pool.release(std::exchange(*block, -1));
}

}  // namespace puna
