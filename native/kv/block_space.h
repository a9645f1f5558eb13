// The places of an arena's blocks: extents, one after the other, each with the same number of blocks at its
// start and, behind them, what is left of its whole pages.
#pragma once

#include <cstdint>

namespace puna {

class BlockSpace {
 public:
  BlockSpace() = default;
  BlockSpace(uint8_t* base, int64_t num_blocks, int64_t block_bytes, int64_t extent_blocks,
             int64_t extent_bytes)
      : base_(base),
        num_blocks_(num_blocks),
        block_bytes_(block_bytes),
        extent_blocks_(extent_blocks),
        extent_bytes_(extent_bytes),
        reciprocal_(extent_blocks == 1 ? 0 : ~uint64_t{0} / static_cast<uint64_t>(extent_blocks) + 1) {}

  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_bytes() const { return block_bytes_; }

  uint8_t* operator[](int64_t block) const {
    // A division would take as long as much of the attention to the block's keys. Exact for 32-bit ids.
    const auto wide = static_cast<unsigned __int128>(static_cast<uint64_t>(block)) * reciprocal_;
    const int64_t extent = reciprocal_ == 0 ? block : static_cast<int64_t>(wide >> 64);
    return base_ + extent * extent_bytes_ + (block - extent * extent_blocks_) * block_bytes_;
  }

 private:
  uint8_t* base_ = nullptr;
  int64_t num_blocks_ = 0, block_bytes_ = 0, extent_blocks_ = 1, extent_bytes_ = 0;
  uint64_t reciprocal_ = 0;  // 2^64 / extent_blocks, rounded up; 0 for 1
};

}  // namespace puna
