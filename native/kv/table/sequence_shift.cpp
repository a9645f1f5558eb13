// Tokens are removed, and those behind them move down.
#include <algorithm>
#include <utility>

#include "base/assertion.h"
#include "kv/table/sequence_table.h"

namespace puna {

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

}  // namespace puna
