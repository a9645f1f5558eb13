// A whole file mapped read-only, so that loading is instant and pages are shared and evictable. Whoever cuts
// the file short while it is mapped kills the process, unless bus errors are caught (bus_guard.h); stored
// models are replaced, never rewritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gguf/bus_guard.h"
#include "gguf/regular_file.h"

namespace puna {

class FileMapping {
 public:
  explicit FileMapping(const RegularFile& file);  // Error if it cannot be mapped
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  // Error if something was read behind the end of the file, where it has been cut short.
  void check_whole() const;

  // The pages are no longer this process's: the system keeps them in its page cache as long as it likes, and
  // whoever reads them has them back.
  void release_pages() const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::optional<GuardedRange> guard_;
};

// How pages of a mapped range come that are not in memory: with their neighbours, or alone.
void expect_random_reads(const uint8_t* begin, size_t size, bool is_random);
// Has the system read a mapped range that is about to be used; returns at once.
void read_ahead(const uint8_t* begin, size_t size);

}  // namespace puna
