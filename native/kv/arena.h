// The KV memory of one model: address space for every block it could ever own, real memory only for blocks
// that were written. Block `id` is the range [base + id * block_bytes, base + (id + 1) * block_bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace puna {

class Arena {
 public:
  // Reserves address space and commits nothing. Throws Error if a size makes no sense or does not fit.
  Arena(int64_t num_blocks, int64_t block_bytes);

  // Throws Error after close().
  uint8_t* base() const;
  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_bytes() const { return block_bytes_; }

  // Gives the memory of these blocks back to the system: their contents are gone, every other block is
  // untouched. A page that a released block shares with a kept one stays. Throws Error for an unknown id.
  void release(std::span<const int64_t> block_ids);

  // Unmaps, once the last mapping() is gone. Further calls do nothing.
  void close() { mapping_.reset(); }

  // What a view of a block holds on to, so that it outlives close().
  std::shared_ptr<uint8_t> mapping() const { return mapping_; }

 private:
  int64_t num_blocks_;
  int64_t block_bytes_;
  std::shared_ptr<uint8_t> mapping_;
};

}  // namespace puna
