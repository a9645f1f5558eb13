// The nodes of a prefix tree that may be written to a disk, some at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"

namespace puna {

// Those that sequences use, then those whose blocks of the first group or whose snapshots were used last; but
// none before what it builds on. What comes into the tree after the listing has begun is left out.
class PrefixListing {
 public:
  explicit PrefixListing(std::shared_ptr<const KvBlocks> kv)
      : kv_(std::move(kv)),
        end_(kv_->tree().next_number()),
        is_listed_(static_cast<size_t>(kv_->tree().num_node_slots())),
        pools_{{&kv_->group(0).pool}} {
    if (kv_->num_groups() > 1 && kv_->has_states()) pools_.push_back({&kv_->group(kv_->num_groups() - 1).pool});
  }

  const std::shared_ptr<const KvBlocks>& kv() const { return kv_; }

  // Up to about `limit` of them; takes no longer than that, so there may be none though more will follow.
  std::vector<int32_t> next(int64_t limit);
  bool is_done() const { return is_done_; }

 private:
  struct Progress {
    const BlockPool* pool;
    int64_t num_seen = 0;  // ids of blocks, among those in use
    int32_t block = -1;    // the cached one to go on with, and when it was released
    int64_t tick = -1;
    bool is_done = false;
  };
  void list(int32_t node, std::vector<int32_t>& nodes);
  bool is_settled(const BlockPool& pool, int32_t node) const;
  Progress* newest();

  std::shared_ptr<const KvBlocks> kv_;
  const int64_t end_;
  std::vector<bool> is_listed_;
  std::vector<Progress> pools_;
  bool is_done_ = false;
};

}  // namespace puna
