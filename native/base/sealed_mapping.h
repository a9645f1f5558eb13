// Memory that a process made and nobody can change any more, mapped read-only and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace puna {

class SealedMapping {
 public:
  // fd: of memfd_create, sealed against writing, growing and shrinking; Error if it is not, since what was
  // checked must not change later. The caller keeps it.
  explicit SealedMapping(int fd);
  ~SealedMapping();
  SealedMapping(const SealedMapping&) = delete;
  SealedMapping& operator=(const SealedMapping&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace puna
