#include "kv/sequence_table.h"

#include <algorithm>
#include <utility>

#include "base/assertion.h"

namespace puna {
namespace {

int64_t blocks_for(int64_t num_tokens) { return (num_tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

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

// The changes to one group's entries when tokens are removed.
struct SequenceTable::Shift {
  int64_t moved_from, moved_to, num_moved;  // positions, and tokens that move down
  int64_t begin, end;                       // entries that are written to
  int64_t first, valid;                     // afterwards
  std::vector<int64_t> replaced;            // entries that need other blocks: shared ones, and those not held
};

SequenceTable::Shift SequenceTable::plan_shift(size_t group, int64_t begin, int64_t end,
                                               int64_t num_tokens) const {
  const int64_t valid = groups_[group].valid;
  const bool is_start_valid = valid <= begin;
  Shift shift;
  shift.moved_from = is_start_valid ? end : std::min(std::max(valid, end), num_tokens);
  shift.num_moved = num_tokens - shift.moved_from;
  shift.moved_to = shift.moved_from - (end - begin);
  shift.begin = shift.moved_to / kBlockTokens;
  shift.end = blocks_for(num_tokens - (end - begin));
  shift.first = is_start_valid ? first(group) : shift.begin;
  shift.valid = is_start_valid ? valid : shift.moved_to;
  for (int64_t index = shift.begin; index < shift.end; ++index)
    if (index < first(group) || kv_->group(group).pool.is_shared(entry(group, index)))
      shift.replaced.push_back(index);
  return shift;
}

bool SequenceTable::remove(int64_t begin, int64_t end, int64_t num_tokens) {
  require(0 <= begin && begin < end && end <= num_tokens && num_tokens <= num_blocks_ * kBlockTokens,
          "removal of tokens that are not there");
  if (state_.exists()) return false;
  const int64_t num_left = num_tokens - (end - begin);
  std::vector<Shift> shifts;
  BlockCounts counts;
  for (size_t group = 0; group < groups_.size(); ++group) {
    shifts.push_back(plan_shift(group, begin, end, num_tokens));
    if (shifts.back().valid > first_seen(group, num_left)) return false;  // a window reaches what slid out
    counts.push_back(static_cast<int64_t>(shifts.back().replaced.size()));
  }
  BlockLists fresh;
  if (!kv_->acquire(counts, fresh)) return false;
  std::vector<std::vector<int32_t>> before;
  for (size_t group = 0; group < groups_.size(); ++group) {
    before.push_back(blocks(group));
    apply(group, shifts[group], fresh[group]);
  }
  const auto finish = [&] {
    for (size_t group = 0; group < groups_.size(); ++group)
      for (size_t i = shifts[group].replaced.size(); i-- > 0;)
        if (const int32_t old = before[group][static_cast<size_t>(shifts[group].replaced[i])]; old >= 0)
          kv_->group(group).pool.release(old);
    if (end < num_tokens) num_genuine_ = std::min(num_genuine_, begin / kBlockTokens * kBlockTokens);
    truncate(num_left);
  };
  try {
    for (size_t group = 0; group < groups_.size(); ++group) {
      const Shift& shift = shifts[group];
      const auto& replaced = shift.replaced;
      const int64_t start = std::max(shift.begin * kBlockTokens, shift.valid),
                    num_kept = shift.moved_to - start;
      // What stays at the start of the first block.
      if (num_kept > 0 && !replaced.empty() && replaced[0] == shift.begin &&
          before[group][static_cast<size_t>(shift.begin)] >= 0)
        kv_->move(group, {before[group], blocks(group), start, start, num_kept});
      if (shift.num_moved > 0)
        kv_->move(group, {before[group], blocks(group), shift.moved_from, shift.moved_to, shift.num_moved});
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
  return true;
}

// The entries as they are afterwards; what is no longer theirs is the caller's to release.
void SequenceTable::apply(size_t group, const Shift& shift, const std::vector<int32_t>& fresh) {
  Entries& entries = groups_[group];
  for (int64_t index = std::max(shift.begin, entries.first); index < shift.end; ++index)
    if (!kv_->group(group).pool.is_shared(entry(group, index)))
      kv_->tree().forget(group, entry(group, index));
  for (size_t i = 0; i < fresh.size(); ++i) entries.blocks[static_cast<size_t>(shift.replaced[i])] = fresh[i];
  entries.first = shift.first;
  entries.valid = shift.valid;
}

namespace {

// References to blocks, for a while.
class Hold {
 public:
  explicit Hold(KvBlocks& kv) : kv_(kv) {}
  Hold(const Hold&) = delete;
  ~Hold() {
    for (size_t i = held_.size(); i-- > 0;) kv_.group(held_[i].first).pool.release(held_[i].second);
  }
  void add(size_t group, int32_t block) {
    if (block < 0) return;
    kv_.group(group).pool.retain(block);
    held_.emplace_back(group, block);
  }

 private:
  KvBlocks& kv_;
  std::vector<std::pair<size_t, int32_t>> held_;
};

}  // namespace

bool SequenceTable::resume(int64_t num_blocks, const std::vector<int32_t>& path, PrefixTree::Partial copied,
                           int32_t state) {
  const PrefixTree& tree = kv_->tree();
  const bool is_partial = copied.num_tokens > 0;
  BlockCounts counts(kv_->num_groups(), 0);
  BlockLists fresh;
  Hold hold(*kv_);  // or taking blocks might evict these
  hold.add(groups_.size(), state);
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const int32_t node : path) hold.add(group, tree.block(node, group));
    if (is_partial) hold.add(group, tree.block(copied.node, group));
    counts[group] = is_partial;
  }
  if (!kv_->acquire(counts, fresh)) return false;
  truncate(num_blocks * kBlockTokens);
  const int64_t begin = (num_blocks + static_cast<int64_t>(path.size())) * kBlockTokens;
  adopt(path, begin + copied.num_tokens);
  state_.adopt(state, begin + copied.num_tokens);
  if (!is_partial) return true;
  ++num_blocks_;
  for (size_t group = 0; group < groups_.size(); ++group) groups_[group].blocks.push_back(fresh[group][0]);
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<int32_t> source = blocks(group);
    source.back() = tree.block(copied.node, group);
    kv_->move(group, {source, blocks(group), begin, begin, copied.num_tokens});
  }
  return true;
}

void SequenceTable::adopt(const std::vector<int32_t>& path, int64_t position) {
  for (size_t group = 0; group < groups_.size(); ++group) adopt(group, path, position);
  num_blocks_ += static_cast<int64_t>(path.size());
}

void SequenceTable::adopt(size_t group, const std::vector<int32_t>& path, int64_t position) {
  Entries& entries = groups_[group];
  const int64_t end = num_blocks_ + static_cast<int64_t>(path.size());
  const int64_t begin = std::clamp(first_needed(group, position), num_blocks_, end);
  if (begin > num_blocks_) {
    let_go(group, entries.first, num_blocks_);
    set_first(entries, begin);
  }
  entries.blocks.resize(static_cast<size_t>(end), -1);
  for (int64_t index = begin; index < end; ++index) {
    const int32_t block = kv_->tree().block(path[static_cast<size_t>(index - num_blocks_)], group);
    kv_->group(group).pool.retain(block);
    entries.blocks[static_cast<size_t>(index)] = block;
  }
}

void SequenceTable::replace(size_t group, int64_t index, int32_t block) {
  int32_t& entry = groups_[group].blocks[static_cast<size_t>(index)];
  kv_->group(group).pool.retain(block);
  kv_->group(group).pool.release(entry);
  entry = block;
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
