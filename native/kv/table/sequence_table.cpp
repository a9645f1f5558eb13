#include "kv/table/sequence_table.h"

#include <algorithm>
#include <utility>

#include "base/assertion.h"

namespace puna {

int64_t SequenceTable::held_bytes() const {
  int64_t bytes = state_.held_bytes();
  for (size_t group = 0; group < groups_.size(); ++group)
    bytes += (num_blocks_ - first(group)) * kv_->group(group).pool.spec().block_bytes;
  return bytes;
}

bool SequenceTable::holds_any(int64_t index) const {
  return std::ranges::any_of(groups_, [&](const Entries& entries) { return entries.first <= index; });
}

int64_t SequenceTable::missing_bytes(int64_t num_tokens) const {
  int64_t bytes = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int64_t needed = blocks_for(num_tokens) - first_needed(group, num_tokens);
    const int64_t missing = std::max<int64_t>(needed - (num_blocks_ - first(group)), 0);
    bytes += missing * kv_->group(group).pool.spec().block_bytes;
  }
  if (state_.needs_block() && !state_.is_only_known()) bytes += kv_->states().pool.spec().block_bytes;
  return bytes;
}

int64_t SequenceTable::least_bytes(int64_t num_tokens) const {
  const int64_t bytes = held_bytes() + missing_bytes(num_tokens);
  if (!state_.exists()) return bytes;
  const bool needs_another = state_.needs_block() && !state_.is_only_known();
  return bytes - (state_.num_held() + needs_another - 1) * kv_->states().pool.spec().block_bytes;
}

bool SequenceTable::grow(int64_t num_tokens, int64_t position) {
  const int64_t num_blocks = std::max(blocks_for(num_tokens), num_blocks_);
  if (num_blocks == num_blocks_ && !state_.needs_block()) return true;
  BlockCounts counts;
  for (size_t group = 0; group < groups_.size(); ++group)
    counts.push_back(num_blocks - std::clamp(first_needed(group, position), num_blocks_, num_blocks));
  if (state_.exists()) counts.push_back(state_.needs_block());
  BlockLists fresh;
  if (!kv_->acquire(counts, fresh)) {
    if (!state_.needs_block() || !state_.is_only_known()) return false;
    counts.back() = 0;
    if (!kv_->acquire(counts, fresh)) return false;
    kv_->tree().forget(groups_.size(), state_.block());
  }
  if (state_.exists() && counts.back() > 0) state_.take(fresh.back()[0]);
  for (size_t group = 0; group < groups_.size(); ++group) {
    Entries& entries = groups_[group];
    const int64_t begin = num_blocks - counts[group];
    if (begin > num_blocks_) {  // what it holds, nobody will see
      let_go(group, entries.first, num_blocks_);
      entries.blocks.resize(static_cast<size_t>(begin), -1);
      set_first(entries, begin);
    }
    entries.blocks.insert(entries.blocks.end(), fresh[group].begin(), fresh[group].end());
  }
  num_blocks_ = num_blocks;
  return true;
}

void SequenceTable::slide(int64_t position) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int64_t needed = std::min(first_needed(group, position), num_blocks_);
    if (needed <= first(group)) continue;
    let_go(group, first(group), needed);
    set_first(groups_[group], needed);
  }
}

void SequenceTable::truncate(int64_t num_tokens) {
  const int64_t kept = std::min(blocks_for(num_tokens), num_blocks_);
  if (const int64_t cut = num_tokens % kBlockTokens; cut != 0 && num_tokens < num_blocks_ * kBlockTokens)
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (first(group) >= kept) continue;
      const int32_t block = entry(group, kept - 1);
      require(!kv_->group(group).pool.is_shared(block), "truncation within shared block", block);
      require(kv_->tree().num_recorded(group, block) <= cut, "truncation of what is recorded of block",
              block);
    }
  state_.truncate(num_tokens);
  // Last first: so they leave the cache in that order.
  for (int64_t index = num_blocks_; index-- > kept;)
    for (size_t group = 0; group < groups_.size(); ++group)
      if (const int32_t block = entry(group, index); block >= 0) kv_->group(group).pool.release(block);
  for (Entries& entries : groups_) {
    entries.blocks.resize(static_cast<size_t>(kept));
    entries.first = std::min(entries.first, kept);
    entries.valid = std::min(entries.valid, num_tokens);
  }
  num_blocks_ = kept;
  if (num_tokens <= num_genuine_) num_genuine_ = kAll;
}

bool SequenceTable::can_resume(int64_t num_tokens) const {
  if (num_tokens > num_blocks_ * kBlockTokens) return false;
  if (state_.exists() && num_tokens > 0 && num_tokens != state_.position()) return false;
  for (size_t group = 0; group < groups_.size(); ++group)
    if (num_tokens > 0 && groups_[group].valid > first_seen(group, num_tokens)) return false;
  return true;
}

std::unique_ptr<SequenceTable> SequenceTable::fork(int64_t num_tokens) const {
  require(can_resume(num_tokens), "a fork without what its next token sees, behind token", num_tokens);
  const int64_t num_full = num_tokens / kBlockTokens;
  const bool is_partial = num_tokens % kBlockTokens != 0;
  auto fork = std::make_unique<SequenceTable>(kv_, keeps_all_);
  BlockCounts counts(kv_->num_groups(), 0);
  std::fill_n(counts.begin(), groups_.size(), is_partial);
  BlockLists fresh;
  if (!kv_->acquire(counts, fresh)) return nullptr;
  if (state_.exists() && num_tokens > 0) fork->state_.adopt(state_.block(), num_tokens);
  fork->num_blocks_ = blocks_for(num_tokens);
  fork->num_genuine_ = num_tokens <= num_genuine_ ? kAll : num_genuine_;
  for (size_t group = 0; group < groups_.size(); ++group) {
    Entries& entries = fork->groups_[group];
    set_first(entries, first_needed(group, num_tokens));
    if (num_tokens > 0) entries.valid = std::max(entries.valid, groups_[group].valid);
    entries.blocks.assign(static_cast<size_t>(num_full), -1);
    for (int64_t index = entries.first; index < num_full; ++index) {
      kv_->group(group).pool.retain(entry(group, index));
      entries.blocks[static_cast<size_t>(index)] = entry(group, index);
    }
    entries.blocks.insert(entries.blocks.end(), fresh[group].begin(), fresh[group].end());
  }
  if (!is_partial) return fork;
  try {
    for (size_t group = 0; group < groups_.size(); ++group) {
      const int64_t begin = std::max(num_full * kBlockTokens, groups_[group].valid);
      kv_->move(group, {blocks(group), fork->blocks(group), begin, begin, num_tokens - begin});
    }
  } catch (...) {
    fork->release();
    throw;
  }
  return fork;
}

// Entries before are not held any more.
void SequenceTable::set_first(Entries& entries, int64_t first) {
  entries.first = first;
  entries.valid = std::max(entries.valid, first * kBlockTokens);
}

// The entries [begin, end) are not held any more.
void SequenceTable::let_go(size_t group, int64_t begin, int64_t end) {
  for (int64_t index = begin; index < end; ++index) {
    int32_t& block = groups_[group].blocks[static_cast<size_t>(index)];
    kv_->group(group).pool.release(block);
    block = -1;
  }
}

}  // namespace puna
