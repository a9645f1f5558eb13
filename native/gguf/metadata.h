// What a GGUF file (version 2 or 3, little endian) says of itself: metadata and tensor index, read from its
// descriptor and checked completely when it is opened. Nothing is mapped and no value is kept: values are
// read when they are asked for, so that even a file with a huge vocabulary costs little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "gguf/regular_file.h"
#include "gguf/tensor_index.h"

namespace puna {

struct MetadataEntry {
  std::string key;  // valid UTF-8
  ValueType type;
  ArrayHeader array;   // of an array; otherwise empty
  uint64_t offset;     // of the value, from the start of the file
  uint64_t num_bytes;  // of the value in the file
};

// An array of strings as a file has it: item i ends at ends[i].
struct GgufTexts {
  std::string bytes;
  std::vector<uint32_t> ends;

  std::vector<std::string_view> items() const;
};

class GgufMetadata {
 public:
  // The caller keeps its descriptor. Throws Error, which names the field and what is wrong; the caller knows
  // the file's name.
  static std::shared_ptr<GgufMetadata> read(int descriptor);

  const RegularFile& file() const { return file_; }
  uint32_t version() const { return version_; }
  const std::vector<MetadataEntry>& entries() const { return entries_; }
  const TensorIndex& tensors() const { return tensors_; }
  TensorIndex& tensors() { return tensors_; }

  // nullptr if there is none of that name.
  const MetadataEntry* find(std::string_view key) const;
  // Error if there is none.
  const MetadataEntry& at(std::string_view key) const;
  // A reader of the entry's value, which it stands in front of.
  Reader value(const MetadataEntry& entry) const;
  // Error if the entry is no array of strings.
  GgufTexts texts(const MetadataEntry& entry) const;

 private:
  explicit GgufMetadata(int descriptor) : file_(descriptor) {}
  void read();
  void read_entries(Reader& reader, uint64_t count);
  uint64_t alignment() const;
  std::vector<std::vector<TensorPlace>> places(uint64_t num_tensors) const;
  template <typename T>
  std::vector<T> numbers(const char* key, ValueType type, uint64_t count) const;

  RegularFile file_;
  uint32_t version_ = 0;
  std::vector<MetadataEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // ordered, as that of tensors
  TensorIndex tensors_;
};

}  // namespace puna
