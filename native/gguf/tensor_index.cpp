#include "gguf/tensor_index.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace puna {
namespace {

constexpr uint64_t kBlockAlignment = 8;  // of quantized values in other files

std::vector<int64_t> read_shape(Reader& reader) {
  const auto dimensions = reader.number<uint32_t>("the number of dimensions");
  if (dimensions > kMaxDimensions) reader.fail("has " + std::to_string(dimensions) + " dimensions");
  std::vector<int64_t> shape(dimensions);
  int64_t product = 1;
  for (int64_t& extent : shape) {
    extent = reader.number<int64_t>("a dimension");
    if (extent < 1) reader.fail("has a dimension of " + std::to_string(extent));
    if (__builtin_mul_overflow(product, extent, &product)) reader.fail("has too many values");
  }
  return shape;
}

uint64_t tensor_bytes(const TensorEntry& tensor, const Reader& reader) {
  const TypeTraits* traits = type_traits(tensor.type);
  if (traits == nullptr) return 0;
  if (row_values(tensor) % traits->block_elements != 0)
    reader.fail("rows of " + std::to_string(row_values(tensor)) + " values are no whole number of " +
                traits->name + " blocks of " + std::to_string(traits->block_elements));
  uint64_t bytes;
  const auto blocks = static_cast<uint64_t>(num_values(tensor) / traits->block_elements);
  if (__builtin_mul_overflow(blocks, static_cast<uint64_t>(traits->block_bytes), &bytes))
    reader.fail("has too many values");
  return bytes;
}

TensorEntry read_tensor(Reader& reader, uint64_t number) {
  reader.enter("tensor " + std::to_string(number));
  TensorEntry tensor = {};
  tensor.name = reader.name(kMaxTensorNameBytes);
  reader.enter("tensor " + quoted(tensor.name));
  tensor.shape = read_shape(reader);
  tensor.type = static_cast<TensorType>(reader.number<uint32_t>("the type"));
  tensor.num_bytes = tensor_bytes(tensor, reader);
  tensor.places = {{0, reader.number<uint64_t>("the offset")}};
  return tensor;
}

}  // namespace

TensorIndex::TensorIndex(Reader& reader, uint64_t count, uint64_t alignment, uint64_t file_size,
                         std::span<const std::vector<TensorPlace>> places) {
  for (uint64_t i = 0; i < count; ++i) {
    entries_.push_back(read_tensor(reader, i));
    if (!index_.emplace(entries_.back().name, i).second) reader.fail("appears twice");
  }
  place_elsewhere(places);
  // The header is at most kMaxMetadataBytes long and the alignment has 32 bits: rounding up cannot overflow.
  place((reader.offset() + alignment - 1) / alignment * alignment, alignment, file_size);
  check_overlaps();
}

void TensorIndex::place(uint64_t data_begin, uint64_t alignment, uint64_t file_size) {
  const uint64_t data_size = file_size > data_begin ? file_size - data_begin : 0;
  for (TensorEntry& tensor : entries_) {
    if (tensor.places.front().file != 0) continue;
    uint64_t& begin = tensor.places.front().offset;
    const std::string where = "tensor " + quoted(tensor.name) + ": ";
    const std::string offset = std::to_string(begin);
    if (begin % alignment != 0)
      throw Error(where + "its offset " + offset + " is not a multiple of the alignment " +
                  std::to_string(alignment));
    if (begin > data_size || tensor.num_bytes > data_size - begin)
      throw Error(where + "its " + std::to_string(tensor.num_bytes) + " bytes at offset " + offset +
                  " reach beyond the end of the file, which has " + std::to_string(data_size) +
                  " bytes of tensor data");
    begin += data_begin;
  }
}

void TensorIndex::place_elsewhere(std::span<const std::vector<TensorPlace>> places) {
  for (size_t i = 0; i < places.size(); ++i) {
    TensorEntry& tensor = entries_[i];
    const size_t count = places[i].size();
    const std::string where = "tensor " + quoted(tensor.name) + ": ";
    if (count == 1 && places[i].front().file == 0) continue;
    if (count != 1 && (tensor.shape.size() != 3 || count != static_cast<size_t>(tensor.shape[2])))
      throw Error(where + "its data cannot lie in " + std::to_string(count) + " places");
    if (type_traits(tensor.type) == nullptr)
      throw Error(where + type_name(tensor.type) + " cannot lie in another file");
    const uint64_t bytes = is_float(tensor.type)
                               ? static_cast<uint64_t>(type_traits(tensor.type)->block_bytes)
                               : kBlockAlignment;
    for (const TensorPlace& place : places[i])
      if (place.file == 0 || place.offset % bytes != 0 || place.offset > UINT64_MAX - tensor.num_bytes)
        throw Error(where + "its data cannot lie at " + std::to_string(place.offset));
    tensor.places = places[i];
  }
}

void TensorIndex::check_overlaps() const {
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t, const TensorEntry*>> placed;
  for (const TensorEntry& tensor : entries_)
    for (const TensorPlace& place : tensor.places)
      placed.emplace_back(place.file, place.offset, tensor.place_bytes(), &tensor);
  std::sort(placed.begin(), placed.end());
  for (size_t i = 1; i < placed.size(); ++i) {
    const auto& [last_file, last, bytes, before] = placed[i - 1];
    const auto& [file, offset, _, tensor] = placed[i];
    if (last_file == file && last + bytes > offset)
      throw Error("tensor " + quoted(tensor->name) + ": its data overlaps that of " + quoted(before->name));
  }
}

void TensorIndex::rename(const std::map<std::string, std::string, std::less<>>& new_names) {
  TensorIndex renamed;
  for (const TensorEntry& tensor : entries_) {
    const auto name = new_names.find(tensor.name);
    if (name == new_names.end()) continue;
    if (!renamed.index_.emplace(name->second, renamed.entries_.size()).second)
      throw Error("tensor " + quoted(tensor.name) + ": another one is " + quoted(name->second) + ", too");
    renamed.entries_.push_back(tensor);
    renamed.entries_.back().name = name->second;
  }
  *this = std::move(renamed);
}

void TensorIndex::join(const std::string& name, std::span<const std::string> matrices) {
  if (find(name) != nullptr) throw Error("tensor " + quoted(name) + ": there is one of that name");
  TensorEntry all = {name, TensorType::kF32, {}, {}, 0};
  for (const std::string& matrix : matrices) {
    const TensorEntry* entry = find(matrix);
    if (entry == nullptr) throw Error("no tensor " + quoted(matrix));
    if (all.places.empty()) std::tie(all.type, all.shape) = std::tie(entry->type, entry->shape);
    if (entry->type != all.type || entry->shape != all.shape || all.shape.size() != 2 ||
        entry->places.size() != 1)
      throw Error("tensor " + quoted(matrix) + ": is no matrix of the type and shape of the others");
    all.places.push_back(entry->places.front());
    all.num_bytes += entry->num_bytes;
  }
  if (all.places.empty()) throw Error("tensor " + quoted(name) + ": has no matrices");
  all.shape.push_back(static_cast<int64_t>(all.places.size()));
  index_.emplace(name, entries_.size());
  entries_.push_back(std::move(all));
}

void TensorIndex::add_one(std::string_view name) {
  const auto found = index_.find(name);
  if (found == index_.end()) throw Error("no tensor " + quoted(name));
  TensorEntry& entry = entries_[found->second];
  if (entry.type != TensorType::kF32 || entry.places.size() != 1)
    throw Error("tensor " + quoted(name) + ": is not F32 and in one place");
  entry.adds_one = true;
}

const TensorEntry* TensorIndex::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

int64_t row_values(const TensorEntry& tensor) { return tensor.shape.empty() ? 1 : tensor.shape[0]; }

int64_t num_values(const TensorEntry& tensor) {
  int64_t product = 1;  // read_shape made sure that it does not overflow
  for (const int64_t extent : tensor.shape) product *= extent;
  return product;
}

std::string type_name(TensorType type) {
  const TypeTraits* traits = type_traits(type);
  return traits != nullptr ? traits->name : "type " + std::to_string(static_cast<uint32_t>(type));
}

}  // namespace puna
