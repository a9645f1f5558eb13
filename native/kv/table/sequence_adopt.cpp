// What a tree knows becomes a table's own.
#include <algorithm>
#include <utility>

#include "kv/table/sequence_table.h"

namespace puna {
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

}  // namespace puna
