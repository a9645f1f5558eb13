// A model's file: its metadata and tensor index, and its tensors' data, mapped read-only. They may lie in
// other files (TensorEntry::file), which come with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file_mapping.h"
#include "gguf/metadata.h"
#include "quants/types.h"

namespace puna {

class GgufFile {
 public:
  // metadata: of the file; its index does not change any more. others: descriptors of the files that its
  // tensors lie in besides, which stay the caller's. Throws Error for a tensor that does not lie within its
  // file.
  static std::shared_ptr<GgufFile> open(std::shared_ptr<GgufMetadata> metadata, std::span<const int> others);
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::shared_ptr<GgufMetadata>& metadata() const { return metadata_; }
  // As FileMapping has them, of all files.
  void check_whole() const;
  void release_pages() const;

  // Throws Error if there is none of that name.
  const TensorEntry& tensor(std::string_view name) const;
  // Its data; of one that lies in several places, those in one of them.
  const uint8_t* data(const TensorEntry& tensor, size_t place = 0) const;

  // The tensor as rows of a matrix; a vector is one row. Error if it has more than two dimensions, a type
  // that cannot be dequantized, or data in several places.
  Weight weight(std::string_view name) const;
  // A tensor of three dimensions as matrices. Error for more, or a type that cannot be dequantized.
  WeightStack weights(std::string_view name) const;

 private:
  const TensorEntry& known_type(std::string_view name) const;

  GgufFile(std::shared_ptr<GgufMetadata> metadata, std::span<const int> others);
  void check_places() const;
  const uint8_t* stored(const TensorPlace& place) const;
  void add_ones();
  void find_matrices();

  std::shared_ptr<GgufMetadata> metadata_;
  std::vector<std::unique_ptr<FileMapping>> mappings_;
  // Values of tensors to which 1 was added, by name.
  std::map<std::string, std::vector<float>, std::less<>> plus_one_;
  // All places of tensors that lie in several, by name.
  std::map<std::string, std::vector<const uint8_t*>, std::less<>> matrices_;
};

}  // namespace puna
