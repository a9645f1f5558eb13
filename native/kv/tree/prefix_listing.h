// The nodes of a prefix tree that may be written to a disk, some at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"

namespace puna {

// Those that sequences use, then those whose blocks of the first group were used last, and then likewise what
// there is of snapshots besides; but none before what it builds on. What comes into the tree after the
// listing has begun is left out.
class PrefixListing {
 public:
  explicit PrefixListing(std::shared_ptr<const KvBlocks> kv)
      : kv_(std::move(kv)),
        end_(kv_->tree().next_number()),
        is_listed_(static_cast<size_t>(kv_->tree().num_node_slots())) {}

  const std::shared_ptr<const KvBlocks>& kv() const { return kv_; }

  // Up to about `limit` of them; takes no longer than that, so there may be none though more will follow.
  std::vector<int32_t> next(int64_t limit);
  bool is_done() const { return is_done_; }

 private:
  bool list_pool(int64_t limit, std::vector<int32_t>& nodes);
  void list(int32_t node, std::vector<int32_t>& nodes);

  std::shared_ptr<const KvBlocks> kv_;
  const int64_t end_;
  std::vector<bool> is_listed_;
  int64_t budget_ = 0;
  size_t group_ = 0;
  int64_t num_seen_ = 0;  // ids of blocks, among those in use
  int32_t block_ = -1;    // the cached one to go on with, and when it was released
  int64_t tick_ = -1;
  bool is_done_ = false;
};

}  // namespace puna
