#include "gguf/gguf_file.h"

#include "base/error.h"

namespace puna {

std::shared_ptr<GgufFile> GgufFile::open(int descriptor) {
  return std::shared_ptr<GgufFile>(new GgufFile(GgufMetadata::read(descriptor)));
}

const TensorEntry& GgufFile::tensor(std::string_view name) const {
  const TensorEntry* entry = metadata_->tensors().find(name);
  if (entry == nullptr) throw Error("no tensor " + quoted(name));
  return *entry;
}

const TensorEntry& GgufFile::known_type(std::string_view name) const {
  const TensorEntry& entry = tensor(name);
  if (!can_dequantize(entry.type))
    throw Error("tensor " + quoted(name) + ": " + type_name(entry.type) + " is not supported");
  return entry;
}

Weight GgufFile::weight(std::string_view name) const {
  const TensorEntry& entry = known_type(name);
  const int64_t cols = row_values(entry);
  const int64_t rows = num_values(entry) / cols;
  if (entry.shape.size() > 1 && rows != entry.shape[1])
    throw Error("tensor " + quoted(name) + ": has more than two dimensions");
  return {entry.type, data(entry), rows, cols,
          static_cast<size_t>(entry.num_bytes) / static_cast<size_t>(rows)};
}

WeightStack GgufFile::weights(std::string_view name) const {
  const TensorEntry& entry = known_type(name);
  const int64_t cols = row_values(entry), rows = entry.shape.size() > 1 ? entry.shape[1] : 1;
  const int64_t count = entry.shape.size() > 2 ? entry.shape[2] : 1;
  const int64_t all_rows = num_values(entry) / cols;
  if (all_rows != rows * count) throw Error("tensor " + quoted(name) + ": has more than three dimensions");
  const size_t row_bytes = static_cast<size_t>(entry.num_bytes) / static_cast<size_t>(all_rows);
  return {{entry.type, data(entry), rows, cols, row_bytes}, count, row_bytes * static_cast<size_t>(rows)};
}

}  // namespace puna
