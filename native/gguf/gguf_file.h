// A model's file: its metadata and tensor index, and its tensors' data, mapped read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gguf/file_mapping.h"
#include "gguf/metadata.h"
#include "quants/types.h"

namespace puna {

class GgufFile {
 public:
  // The caller keeps its descriptor. Throws Error, as GgufMetadata::read does.
  static std::shared_ptr<GgufFile> open(int descriptor);

  const std::shared_ptr<GgufMetadata>& metadata() const { return metadata_; }
  const FileMapping& mapping() const { return mapping_; }

  // Throws Error if there is none of that name.
  const TensorEntry& tensor(std::string_view name) const;
  const uint8_t* data(const TensorEntry& tensor) const { return mapping_.bytes().data() + tensor.offset; }

  // The tensor as rows of a matrix; a vector is one row. Error if it has more than two dimensions, or a type
  // that cannot be dequantized.
  Weight weight(std::string_view name) const;
  // A tensor of three dimensions as matrices. Error for more, or a type that cannot be dequantized.
  WeightStack weights(std::string_view name) const;

 private:
  const TensorEntry& known_type(std::string_view name) const;

  explicit GgufFile(std::shared_ptr<GgufMetadata> metadata)
      : metadata_(std::move(metadata)), mapping_(metadata_->file()) {}

  std::shared_ptr<GgufMetadata> metadata_;
  FileMapping mapping_;
};

}  // namespace puna
