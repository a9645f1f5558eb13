// The KV memory of one model: address space for every block it could ever own, real memory only where it was
// committed. Memory comes and goes by extents: as many blocks as fit a few huge pages. A huge page takes a
// tenth of the time that its many small ones do to come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_space.h"

namespace puna {

inline constexpr int64_t kHugePageBytes = int64_t{1} << 21;

class PageFetcher;
struct ByteRange;

class Arena {
 public:
  // An extent for each block.
  Arena(int64_t num_blocks, int64_t block_bytes) : Arena(num_blocks, block_bytes, 1, block_bytes) {}
  // Reserves address space for the extents of num_blocks blocks and commits nothing. Extents are of huge
  // pages if their size is a multiple of one. Throws Error if a size makes no sense or does not fit.
  Arena(int64_t num_blocks, int64_t block_bytes, int64_t extent_blocks, int64_t extent_bytes);
  ~Arena();

  // Throws Error after close().
  BlockSpace blocks() const;
  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_bytes() const { return block_bytes_; }
  int64_t extent_blocks() const { return extent_blocks_; }
  int64_t extent_bytes() const { return extent_bytes_; }

  // Brings memory for these extents now; contents that they have stay. Throws Error for an unknown one, and
  // if the system does not have it: then what came half-way is gone again, with all contents.
  void commit(std::span<const int64_t> extents);

  // Has the system bring memory for an extent that is about to be written, without waiting for it: what is
  // written before it is there is brought by the write. Throws Error for an unknown one.
  void fetch(int64_t extent);

  // Gives the memory of these extents back to the system: their contents are gone, every other one is
  // untouched. A page that a released extent shares with a kept one stays. Throws Error for an unknown one.
  void release(std::span<const int64_t> extents);

  // Unmaps, once the last mapping() is gone. Further calls do nothing.
  void close();

  // Owner of the memory for views of blocks, so that they outlive close().
  std::shared_ptr<uint8_t> mapping() const { return mapping_; }

 private:
  int64_t num_extents() const { return (num_blocks_ + extent_blocks_ - 1) / extent_blocks_; }
  uint8_t* base() const;
  void check(int64_t extent) const;
  std::vector<ByteRange> runs_of(std::span<const int64_t> extents) const;

  int64_t num_blocks_, block_bytes_, extent_blocks_, extent_bytes_;
  std::shared_ptr<uint8_t> mapping_;
  std::unique_ptr<PageFetcher> fetcher_;
};

}  // namespace puna
