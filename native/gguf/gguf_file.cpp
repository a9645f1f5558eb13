#include "gguf/gguf_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace puna {

std::shared_ptr<GgufFile> GgufFile::open(std::shared_ptr<GgufMetadata> metadata,
                                         std::span<const int> others) {
  return std::shared_ptr<GgufFile>(new GgufFile(std::move(metadata), others));
}

GgufFile::GgufFile(std::shared_ptr<GgufMetadata> metadata, std::span<const int> others)
    : metadata_(std::move(metadata)) {
  mappings_.push_back(std::make_unique<FileMapping>(metadata_->file()));
  for (const int descriptor : others)
    mappings_.push_back(std::make_unique<FileMapping>(RegularFile(descriptor)));
  check_places();
  add_ones();
  find_matrices();
}

void GgufFile::check_places() const {
  for (const TensorEntry& tensor : metadata_->tensors().entries()) {
    const std::string where = "tensor " + quoted(tensor.name) + ": ";
    for (const TensorPlace& place : tensor.places) {
      if (place.file >= mappings_.size()) throw Error(where + "its data lie in a file that is not there");
      const uint64_t size = mappings_[place.file]->bytes().size();
      if (place.offset > size || tensor.place_bytes() > size - place.offset)
        throw Error(where + "its " + std::to_string(tensor.place_bytes()) + " bytes at " +
                    std::to_string(place.offset) + " reach beyond the end of their file");
    }
  }
}

const uint8_t* GgufFile::stored(const TensorPlace& place) const {
  return mappings_[place.file]->bytes().data() + place.offset;
}

void GgufFile::add_ones() {
  for (const TensorEntry& tensor : metadata_->tensors().entries()) {
    if (!tensor.adds_one) continue;
    std::vector<float>& values = plus_one_[tensor.name];
    values.resize(static_cast<size_t>(num_values(tensor)));
    std::memcpy(values.data(), stored(tensor.places.front()), tensor.num_bytes);
    for (float& value : values) value += 1;
  }
}

void GgufFile::find_matrices() {
  for (const TensorEntry& tensor : metadata_->tensors().entries()) {
    if (tensor.places.size() == 1) continue;
    std::vector<const uint8_t*>& found = matrices_[tensor.name];
    for (const TensorPlace& place : tensor.places) found.push_back(stored(place));
  }
}

const uint8_t* GgufFile::data(const TensorEntry& tensor, size_t place) const {
  if (!tensor.adds_one) return stored(tensor.places[place]);
  return reinterpret_cast<const uint8_t*>(plus_one_.find(tensor.name)->second.data());
}

void GgufFile::check_whole() const {
  for (const auto& mapping : mappings_) mapping->check_whole();
}

void GgufFile::release_pages() const {
  for (const auto& mapping : mappings_) mapping->release_pages();
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
  if (entry.shape.size() > 1 && rows != *std::max_element(entry.shape.begin() + 1, entry.shape.end()))
    throw Error("tensor " + quoted(name) + ": has more than two dimensions");
  if (entry.places.size() > 1) throw Error("tensor " + quoted(name) + ": its rows do not lie together");
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
  const auto apart = matrices_.find(entry.name);
  return {{entry.type, data(entry), rows, cols, row_bytes},
          count,
          row_bytes * static_cast<size_t>(rows),
          apart == matrices_.end() ? nullptr : apart->second.data()};
}

}  // namespace puna
