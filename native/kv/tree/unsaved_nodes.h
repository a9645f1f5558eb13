// The nodes of a prefix tree whose blocks have no files yet, in the order in which they came.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"

namespace puna {

// Nobody looks for files of the shortest prefixes: these wait until something longer builds on them.
// Snapshots within a block that were made the first to go are not worth a file.
class UnsavedNodes {
 public:
  // From now on the tree notes them.
  UnsavedNodes(std::shared_ptr<KvBlocks> kv, int64_t min_blocks)
      : kv_(std::move(kv)), min_blocks_(min_blocks) {
    kv_->tree().note_fresh();
  }

  const std::shared_ptr<KvBlocks>& kv() const { return kv_; }

  // At most so many will be taken.
  int64_t num_fresh() const { return static_cast<int64_t>(kv_->tree().fresh().size()); }

  // At most `limit` of them, none before what it builds on, which count as saved from here on. There may be
  // none though more follow.
  std::vector<int32_t> take(int64_t limit);

  // Those that have not been saved after all come first again. Whatever has been evicted meanwhile does not.
  void put_back(const std::vector<PrefixTree::NodeId>& nodes);

  // None of those so far will be taken for its own sake.
  void forget() { kv_->tree().fresh().clear(); }

 private:
  bool may_be_saved(int32_t node) const;
  bool is_aged(int32_t node) const;

  std::shared_ptr<KvBlocks> kv_;
  int64_t min_blocks_;
};

}  // namespace puna
