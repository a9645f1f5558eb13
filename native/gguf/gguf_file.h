// A GGUF file (version 2 or 3, little endian), mapped read-only and checked completely when it is opened:
// every name, value and tensor lies within the file, has a known shape and, if its type is known, a size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file_mapping.h"
#include "gguf/reader.h"
#include "quants/types.h"

namespace puna {

struct MetadataEntry {
  std::string_view key;  // valid UTF-8, in the mapping
  ValueType type;
  size_t offset;  // of the value, from the start of the file
};

struct TensorEntry {
  std::string name;            // valid UTF-8
  TensorType type;             // perhaps one without traits
  std::vector<int64_t> shape;  // fastest first; all >= 1
  const uint8_t* data;         // in the mapping, aligned to at least 8 bytes
  size_t num_bytes;            // 0 if the type is unknown
};

class GgufFile : public std::enable_shared_from_this<GgufFile> {
 public:
  // The caller keeps its descriptor. Throws Error, which names the field and what is wrong; the caller knows
  // the file's name.
  static std::shared_ptr<GgufFile> open(int descriptor);

  uint32_t version() const { return version_; }
  const std::vector<MetadataEntry>& metadata() const { return metadata_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }

  // A reader that stands at the start of the entry's value.
  Reader value(const MetadataEntry& entry) const;
  // Throw Error if there is none of that name.
  const MetadataEntry& metadata(std::string_view key) const;
  const TensorEntry& tensor(std::string_view name) const;

  // The tensor as rows of a matrix; a vector is one row. Error if it has more than two dimensions, or a type
  // that cannot be dequantized.
  Weight weight(std::string_view name) const;

  const FileMapping& mapping() const { return mapping_; }

  // Byte offset of a tensor's data from the start of the file.
  size_t offset(const TensorEntry& tensor) const {
    return static_cast<size_t>(tensor.data - mapping_.bytes().data());
  }

 private:
  explicit GgufFile(int descriptor) : mapping_(RegularFile(descriptor)) {}
  void parse();
  void read_metadata(Reader& reader, uint64_t count);
  void read_tensors(Reader& reader, uint64_t count);
  void place_tensors(size_t header_end, const std::vector<uint64_t>& offsets);
  uint32_t alignment() const;

  FileMapping mapping_;
  uint32_t version_ = 0;
  std::vector<MetadataEntry> metadata_;
  std::vector<TensorEntry> tensors_;
  // Ordered, not hashed: the names are a stranger's, and could be chosen to collide.
  std::map<std::string_view, size_t, std::less<>> metadata_index_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// "Q4_K", or "type 99" for a type without traits.
std::string type_name(TensorType type);

}  // namespace puna
