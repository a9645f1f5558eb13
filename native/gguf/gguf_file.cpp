#include "gguf/gguf_file.h"

#include <limits>

#include "base/error.h"

namespace puna {
namespace {

constexpr uint32_t kMaxDimensions = 4;
constexpr uint32_t kDefaultAlignment = 32;
// Far above any real file; they bound the memory that a hostile one can make us spend.
constexpr uint64_t kMaxMetadata = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr size_t kMinMetadataBytes = 8 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 4 + 4 + 8;

uint32_t read_version(Reader& reader) {
  const std::string_view magic(reinterpret_cast<const char*>(reader.take(4, 1, "the magic")), 4);
  if (magic != "GGUF") throw Error("not a GGUF file: it starts with " + quoted(magic));
  const uint32_t version = reader.number<uint32_t>("the version");
  if ((version & 0xffff) == 0 && version != 0) reader.fail("big-endian GGUF files are not supported");
  if (version != 2 && version != 3)
    reader.fail("GGUF version " + std::to_string(version) + " is not supported, only 2 and 3");
  return version;
}

uint64_t read_count(Reader& reader, const char* what, uint64_t limit, size_t min_bytes) {
  const uint64_t count = reader.number<uint64_t>(what);
  if (count > limit || count > reader.remaining() / min_bytes)
    reader.fail(std::string(what) + " is " + std::to_string(count) + ", more than the file can hold");
  return count;
}

std::string_view read_name(Reader& reader, const char* what) {
  const std::string_view name = reader.string(what);
  if (!is_utf8(name)) reader.fail(std::string(what) + " " + quoted(name) + " is not UTF-8");
  return name;
}

std::vector<int64_t> read_shape(Reader& reader) {
  const uint32_t dimensions = reader.number<uint32_t>("the number of dimensions");
  if (dimensions > kMaxDimensions) reader.fail("has " + std::to_string(dimensions) + " dimensions");
  std::vector<int64_t> shape(dimensions);
  int64_t num_values = 1;
  for (int64_t& extent : shape) {
    extent = reader.number<int64_t>("a dimension");
    if (extent < 1) reader.fail("has a dimension of " + std::to_string(extent));
    if (__builtin_mul_overflow(num_values, extent, &num_values)) reader.fail("has too many values");
  }
  return shape;
}

int64_t row_values(const TensorEntry& tensor) { return tensor.shape.empty() ? 1 : tensor.shape[0]; }

int64_t num_values(const TensorEntry& tensor) {
  int64_t product = 1;  // read_shape made sure that it does not overflow
  for (const int64_t extent : tensor.shape) product *= extent;
  return product;
}

size_t tensor_bytes(const TensorEntry& tensor, const Reader& reader) {
  const TypeTraits* traits = type_traits(tensor.type);
  if (traits == nullptr) return 0;
  if (row_values(tensor) % traits->block_elements != 0)
    reader.fail("rows of " + std::to_string(row_values(tensor)) + " values are no whole number of " +
                traits->name + " blocks of " + std::to_string(traits->block_elements));
  size_t bytes;
  const auto blocks = static_cast<size_t>(num_values(tensor) / traits->block_elements);
  if (__builtin_mul_overflow(blocks, static_cast<size_t>(traits->block_bytes), &bytes))
    reader.fail("has too many values");
  return bytes;
}

}  // namespace

std::string type_name(TensorType type) {
  const TypeTraits* traits = type_traits(type);
  return traits != nullptr ? traits->name : "type " + std::to_string(static_cast<uint32_t>(type));
}

std::shared_ptr<GgufFile> GgufFile::open(int descriptor) {
  std::shared_ptr<GgufFile> file(new GgufFile(descriptor));
  file->parse();
  return file;
}

void GgufFile::parse() {
  Reader reader(mapping_.bytes(), 0, "header");
  version_ = read_version(reader);
  const uint64_t tensor_count = read_count(reader, "the number of tensors", kMaxTensors, kMinTensorBytes);
  const uint64_t key_count =
      read_count(reader, "the number of metadata keys", kMaxMetadata, kMinMetadataBytes);
  read_metadata(reader, key_count);
  read_tensors(reader, tensor_count);
}

void GgufFile::read_metadata(Reader& reader, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    reader.enter("metadata key " + std::to_string(i));
    const std::string_view key = read_name(reader, "its name");
    reader.enter("metadata " + quoted(key));
    const ValueType type = reader.value_type();
    if (!metadata_index_.emplace(key, metadata_.size()).second) reader.fail("appears twice");
    metadata_.push_back({key, type, reader.offset()});
    reader.skip(type);
  }
}

void GgufFile::read_tensors(Reader& reader, uint64_t count) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < count; ++i) {
    reader.enter("tensor " + std::to_string(i));
    TensorEntry tensor = {};
    tensor.name = read_name(reader, "its name");
    reader.enter("tensor " + quoted(tensor.name));
    tensor.shape = read_shape(reader);
    tensor.type = static_cast<TensorType>(reader.number<uint32_t>("the type"));
    tensor.num_bytes = tensor_bytes(tensor, reader);
    offsets.push_back(reader.number<uint64_t>("the offset"));
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) reader.fail("appears twice");
    tensors_.push_back(std::move(tensor));
  }
  place_tensors(reader.offset(), offsets);
}

void GgufFile::place_tensors(size_t header_end, const std::vector<uint64_t>& offsets) {
  const size_t align = alignment();
  // The header is part of a file that fits into memory, so rounding up cannot overflow.
  const size_t data_begin = (header_end + align - 1) / align * align;
  const size_t file_size = mapping_.bytes().size();
  const size_t data_size = file_size > data_begin ? file_size - data_begin : 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorEntry& tensor = tensors_[i];
    const std::string where = "tensor " + quoted(tensor.name) + ": ";
    if (offsets[i] % align != 0)
      throw Error(where + "its offset " + std::to_string(offsets[i]) +
                  " is not a multiple of the alignment " + std::to_string(align));
    if (offsets[i] > data_size || tensor.num_bytes > data_size - offsets[i])
      throw Error(where + "its " + std::to_string(tensor.num_bytes) + " bytes at offset " +
                  std::to_string(offsets[i]) + " reach beyond the end of the file, which has " +
                  std::to_string(data_size) + " bytes of tensor data");
    tensor.data = mapping_.bytes().data() + data_begin + offsets[i];
  }
}

uint32_t GgufFile::alignment() const {
  const auto found = metadata_index_.find("general.alignment");
  if (found == metadata_index_.end()) return kDefaultAlignment;
  const MetadataEntry& entry = metadata_[found->second];
  Reader reader = value(entry);
  if (entry.type != ValueType::kUint32) reader.fail("is not a uint32");
  const uint32_t alignment = reader.number<uint32_t>("the alignment");
  // At least 8, as the specification has it: then numbers of tensors are aligned in memory.
  if (alignment < 8 || !std::has_single_bit(alignment))
    reader.fail("is " + std::to_string(alignment) + ", not a power of two of at least 8");
  return alignment;
}

Reader GgufFile::value(const MetadataEntry& entry) const {
  return Reader(mapping_.bytes().subspan(entry.offset), entry.offset, "metadata " + quoted(entry.key));
}

const MetadataEntry& GgufFile::metadata(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  if (found == metadata_index_.end()) throw Error("no metadata " + quoted(key));
  return metadata_[found->second];
}

const TensorEntry& GgufFile::tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  if (found == tensor_index_.end()) throw Error("no tensor " + quoted(name));
  return tensors_[found->second];
}

Weight GgufFile::weight(std::string_view name) const {
  const TensorEntry& entry = tensor(name);
  if (!can_dequantize(entry.type))
    throw Error("tensor " + quoted(name) + ": " + type_name(entry.type) + " is not supported");
  const int64_t cols = row_values(entry);
  const int64_t rows = num_values(entry) / cols;
  if (entry.shape.size() > 1 && rows != entry.shape[1])
    throw Error("tensor " + quoted(name) + ": has more than two dimensions");
  return {entry.type, entry.data, rows, cols, entry.num_bytes / static_cast<size_t>(rows)};
}

}  // namespace puna
