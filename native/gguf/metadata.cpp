#include "gguf/metadata.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace puna {
namespace {

constexpr uint32_t kDefaultAlignment = 32;
// puna's own, of headers for weights that lie in files of other formats: for each tensor, in their order.
constexpr const char* kFiles = "puna.tensors.file";
constexpr const char* kPlaces = "puna.tensors.places";
constexpr const char* kOffsets = "puna.tensors.offset";
constexpr size_t kMinEntryBytes = 8 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 4 + 4 + 8;

uint32_t read_version(Reader& reader) {
  char magic[4];
  reader.numbers(std::span<char>(magic), "the magic");
  const std::string_view text(magic, sizeof(magic));
  if (text != "GGUF") throw Error("not a GGUF file: it starts with " + quoted(text));
  const auto version = reader.number<uint32_t>("the version");
  if ((version & 0xffff) == 0 && version != 0) reader.fail("big-endian GGUF files are not supported");
  if (version != 2 && version != 3)
    reader.fail("GGUF version " + std::to_string(version) + " is not supported, only 2 and 3");
  return version;
}

uint64_t read_count(Reader& reader, const char* what, uint64_t limit, size_t min_bytes) {
  const auto count = reader.number<uint64_t>(what);
  if (count > reader.remaining() / min_bytes)
    reader.fail(std::string(what) + " is " + std::to_string(count) + ", more than the file can hold");
  if (count > limit)
    reader.fail(std::string(what) + " is " + std::to_string(count) + ", more than " + std::to_string(limit));
  return count;
}

MetadataEntry read_key_value(Reader& reader, uint64_t number) {
  reader.enter("metadata key " + std::to_string(number));
  MetadataEntry entry = {};
  entry.key = reader.name(kMaxKeyBytes);
  reader.enter("metadata " + quoted(entry.key));
  entry.type = reader.value_type();
  entry.offset = reader.offset();
  entry.array = reader.skip(entry.type);
  entry.num_bytes = reader.offset() - entry.offset;
  return entry;
}

}  // namespace

std::vector<std::string_view> GgufTexts::items() const {
  std::vector<std::string_view> items;
  items.reserve(ends.size());
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    items.push_back(std::string_view(bytes).substr(begin, end - begin));
    begin = end;
  }
  return items;
}

std::shared_ptr<GgufMetadata> GgufMetadata::read(int descriptor) {
  std::shared_ptr<GgufMetadata> metadata(new GgufMetadata(descriptor));
  metadata->read();
  return metadata;
}

void GgufMetadata::read() {
  Reader reader(file_, 0, file_.size(), "header");
  version_ = read_version(reader);
  const uint64_t num_tensors = read_count(reader, "the number of tensors", kMaxTensors, kMinTensorBytes);
  const uint64_t num_keys = read_count(reader, "the number of metadata keys", kMaxKeys, kMinEntryBytes);
  read_entries(reader, num_keys);
  tensors_ = TensorIndex(reader, num_tensors, alignment(), file_.size(), places(num_tensors));
}

void GgufMetadata::read_entries(Reader& reader, uint64_t count) {
  uint64_t key_bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    entries_.push_back(read_key_value(reader, i));
    const std::string& key = entries_.back().key;
    if (!index_.emplace(key, i).second) reader.fail("appears twice");
    key_bytes += key.size();
    if (key_bytes > kMaxAllKeysBytes)
      reader.fail("keys of more than " + std::to_string(kMaxAllKeysBytes) + " bytes");
    if (reader.offset() > kMaxMetadataBytes)
      reader.fail("metadata of more than " + std::to_string(kMaxMetadataBytes) + " bytes");
  }
}

uint64_t GgufMetadata::alignment() const {
  const MetadataEntry* entry = find("general.alignment");
  if (entry == nullptr) return kDefaultAlignment;
  Reader reader = value(*entry);
  if (entry->type != ValueType::kUint32) reader.fail("is not a uint32");
  const auto alignment = reader.number<uint32_t>("the alignment");
  // At least 8, as the specification has it: then numbers of tensors are aligned in memory.
  if (alignment < 8 || !std::has_single_bit(alignment))
    reader.fail("is " + std::to_string(alignment) + ", not a power of two of at least 8");
  return alignment;
}

std::vector<std::vector<TensorPlace>> GgufMetadata::places(uint64_t num_tensors) const {
  if (find(kFiles) == nullptr) return {};
  const auto counts = numbers<uint32_t>(kPlaces, ValueType::kUint32, num_tensors);
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const auto files = numbers<uint32_t>(kFiles, ValueType::kUint32, total);
  const auto offsets = numbers<uint64_t>(kOffsets, ValueType::kUint64, total);
  std::vector<std::vector<TensorPlace>> places;
  size_t next = 0;
  for (const uint32_t count : counts) {
    places.emplace_back();
    for (const size_t end = next + count; next < end; ++next)
      places.back().push_back({files[next], offsets[next]});
  }
  return places;
}

template <typename T>
std::vector<T> GgufMetadata::numbers(const char* key, ValueType type, uint64_t count) const {
  const MetadataEntry& entry = at(key);
  Reader reader = value(entry);
  if (entry.type != ValueType::kArray || entry.array.type != type || entry.array.count != count)
    reader.fail("is not an array of " + std::to_string(count) + " values of the type " + type_name(type));
  reader.array_header();
  std::vector<T> found(count);
  reader.numbers(std::span<T>(found), "an array");
  return found;
}

const MetadataEntry* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const MetadataEntry& GgufMetadata::at(std::string_view key) const {
  const MetadataEntry* entry = find(key);
  if (entry == nullptr) throw Error("no metadata " + quoted(key));
  return *entry;
}

Reader GgufMetadata::value(const MetadataEntry& entry) const {
  return Reader(file_, entry.offset, entry.offset + entry.num_bytes, "metadata " + quoted(entry.key));
}

GgufTexts GgufMetadata::texts(const MetadataEntry& entry) const {
  static_assert(kMaxArrayBytes <= UINT32_MAX);
  Reader reader = value(entry);
  if (entry.type != ValueType::kArray || entry.array.type != ValueType::kString)
    reader.fail("is not an array of strings");
  GgufTexts texts;
  texts.bytes.reserve(entry.num_bytes);
  texts.ends.reserve(entry.array.count);
  for (uint64_t left = reader.array_header().count; left > 0; --left) {
    reader.append_string(texts.bytes, "a string");
    texts.ends.push_back(static_cast<uint32_t>(texts.bytes.size()));
  }
  return texts;
}

}  // namespace puna
