#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "base/error.h"
#include "bindings/bindings.h"
#include "gguf/gguf_file.h"

namespace nb = nanobind;

namespace puna {
namespace {

// Vocabularies hold single bytes that are no UTF-8; surrogateescape keeps them.
nb::object to_text(std::string_view text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

template <typename T>
nb::object to_numpy(Reader& reader, uint64_t count) {
  auto values = std::make_unique<T[]>(count);
  if constexpr (std::is_same_v<T, bool>) {
    for (uint64_t i = 0; i < count; ++i) values[i] = reader.boolean();
  } else {
    reader.numbers(std::span<T>(values.get(), count), "an array");
  }
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values.release(), {count}, owner));
}

nb::object items_to_python(Reader& reader, ArrayHeader items);

nb::object to_list(Reader& reader, ArrayHeader items) {
  nb::list values;
  for (uint64_t i = 0; i < items.count; ++i) {
    values.append(items.type == ValueType::kString ? to_text(reader.string("a string"))
                                                   : items_to_python(reader, reader.array_header()));
  }
  return values;
}

nb::object items_to_python(Reader& reader, ArrayHeader items) {
  switch (items.type) {
    case ValueType::kUint8:
      return to_numpy<uint8_t>(reader, items.count);
    case ValueType::kInt8:
      return to_numpy<int8_t>(reader, items.count);
    case ValueType::kUint16:
      return to_numpy<uint16_t>(reader, items.count);
    case ValueType::kInt16:
      return to_numpy<int16_t>(reader, items.count);
    case ValueType::kUint32:
      return to_numpy<uint32_t>(reader, items.count);
    case ValueType::kInt32:
      return to_numpy<int32_t>(reader, items.count);
    case ValueType::kFloat32:
      return to_numpy<float>(reader, items.count);
    case ValueType::kBool:
      return to_numpy<bool>(reader, items.count);
    case ValueType::kUint64:
      return to_numpy<uint64_t>(reader, items.count);
    case ValueType::kInt64:
      return to_numpy<int64_t>(reader, items.count);
    case ValueType::kFloat64:
      return to_numpy<double>(reader, items.count);
    case ValueType::kString:
    case ValueType::kArray:
      return to_list(reader, items);
  }
  return nb::none();
}

nb::object to_python(Reader& reader, ValueType type) {
  constexpr const char* kNumber = "a number";
  switch (type) {
    case ValueType::kUint8:
      return nb::int_(reader.number<uint8_t>(kNumber));
    case ValueType::kInt8:
      return nb::int_(reader.number<int8_t>(kNumber));
    case ValueType::kUint16:
      return nb::int_(reader.number<uint16_t>(kNumber));
    case ValueType::kInt16:
      return nb::int_(reader.number<int16_t>(kNumber));
    case ValueType::kUint32:
      return nb::int_(reader.number<uint32_t>(kNumber));
    case ValueType::kInt32:
      return nb::int_(reader.number<int32_t>(kNumber));
    case ValueType::kFloat32:
      return nb::float_(reader.number<float>(kNumber));
    case ValueType::kBool:
      return nb::bool_(reader.boolean());
    case ValueType::kString:
      return to_text(reader.string("a string"));
    case ValueType::kArray:
      return items_to_python(reader, reader.array_header());
    case ValueType::kUint64:
      return nb::int_(reader.number<uint64_t>(kNumber));
    case ValueType::kInt64:
      return nb::int_(reader.number<int64_t>(kNumber));
    case ValueType::kFloat64:
      return nb::float_(reader.number<double>(kNumber));
  }
  return nb::none();
}

// An array's items, some at a time.
class ArrayItems {
 public:
  ArrayItems(std::shared_ptr<GgufMetadata> metadata, std::string_view key)
      : metadata_(std::move(metadata)),
        reader_(array_reader(*metadata_, key)),
        items_(reader_.array_header()) {}

  // Empty at the end. Of strings and arrays, so many that they are not much longer than kChunkBytes.
  nb::object read(uint64_t max_items) {
    ArrayHeader next = {items_.type, std::min(items_.count, max_items)};
    if (fixed_size(items_.type) == 0) next.count = count_up_to(next.count, kChunkBytes);
    items_.count -= next.count;
    return items_to_python(reader_, next);
  }

 private:
  static constexpr uint64_t kChunkBytes = 1 << 20;

  static Reader array_reader(const GgufMetadata& metadata, std::string_view key) {
    const MetadataEntry& entry = metadata.at(key);
    Reader reader = metadata.value(entry);
    if (entry.type != ValueType::kArray) reader.fail("is not an array");
    return reader;
  }

  // How many of the next `most` items are together at least `bytes` long; all if none are.
  uint64_t count_up_to(uint64_t most, uint64_t bytes) const {
    Reader ahead = reader_;
    uint64_t count = 0;
    while (count < most && ahead.offset() - reader_.offset() < bytes) {
      ahead.skip(items_.type);
      ++count;
    }
    return count;
  }

  std::shared_ptr<GgufMetadata> metadata_;
  Reader reader_;
  ArrayHeader items_;  // what is left
};

std::shared_ptr<GgufMetadata> read_metadata(int descriptor) {
  const nb::gil_scoped_release release;
  return GgufMetadata::read(descriptor);
}

std::shared_ptr<GgufFile> open(std::shared_ptr<GgufMetadata> metadata, const std::vector<int>& others) {
  const nb::gil_scoped_release release;
  return GgufFile::open(std::move(metadata), others);
}

nb::list entries(const GgufMetadata& metadata) {
  nb::list out;
  for (const MetadataEntry& entry : metadata.entries()) {
    const bool is_array = entry.type == ValueType::kArray;
    out.append(nb::make_tuple(to_text(entry.key), type_name(entry.type),
                              is_array ? type_name(entry.array.type) : "", entry.array.count));
  }
  return out;
}

nb::object value(const GgufMetadata& metadata, std::string_view key) {
  const MetadataEntry& entry = metadata.at(key);
  Reader reader = metadata.value(entry);
  return to_python(reader, entry.type);
}

GgufTexts texts(const GgufMetadata& metadata, std::string_view key) {
  const nb::gil_scoped_release release;
  return metadata.texts(metadata.at(key));
}

nb::list tensors(const GgufMetadata& metadata) {
  nb::list out;
  for (const TensorEntry& tensor : metadata.tensors().entries()) {
    nb::list shape;
    for (const int64_t extent : tensor.shape) shape.append(extent);
    out.append(nb::make_tuple(tensor.name, type_name(tensor.type), nb::tuple(shape),
                              tensor.places.front().offset, tensor.num_bytes));
  }
  return out;
}

using ByteView = nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>, nb::c_contig>;
using FloatArray = nb::ndarray<nb::numpy, float, nb::c_contig>;

ByteView data(nb::handle_t<GgufFile> self, std::string_view name) {
  const auto& file = nb::cast<const GgufFile&>(self);
  const TensorEntry& tensor = file.tensor(name);
  if (type_traits(tensor.type) == nullptr)
    throw Error("tensor " + quoted(name) + ": " + type_name(tensor.type) + " is not supported");
  if (tensor.places.size() == 1)
    return ByteView(file.data(tensor), {static_cast<size_t>(tensor.num_bytes)}, self);
  std::unique_ptr<uint8_t[]> copy(new uint8_t[tensor.num_bytes]);
  for (size_t i = 0; i < tensor.places.size(); ++i)
    std::memcpy(copy.get() + i * tensor.place_bytes(), file.data(tensor, i), tensor.place_bytes());
  nb::capsule owner(copy.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return ByteView(copy.release(), {static_cast<size_t>(tensor.num_bytes)}, owner);
}

FloatArray to_floats(const GgufFile& file, std::string_view name) {
  const TensorEntry& tensor = file.tensor(name);
  if (!can_dequantize(tensor.type))
    throw Error("tensor " + quoted(name) + ": " + type_name(tensor.type) + " is not supported");
  std::vector<size_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
  size_t count = 1;
  for (const size_t extent : shape) count *= extent;
  std::unique_ptr<float[]> values(new float[count]);
  {
    const nb::gil_scoped_release release;
    const size_t at_once = count / tensor.places.size();
    for (size_t i = 0; i < tensor.places.size(); ++i)
      dequantize(tensor.type, file.data(tensor, i), values.get() + i * at_once,
                 static_cast<int64_t>(at_once));
    file.check_whole();
  }
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return FloatArray(values.release(), shape.size(), shape.data(), owner);
}

nb::list tensor_types() {
  nb::list types;
  for (uint32_t number = 0; number <= static_cast<uint32_t>(TensorType::kQ2_0); ++number) {
    if (const TypeTraits* traits = type_traits(static_cast<TensorType>(number))) {
      types.append(nb::make_tuple(traits->name, number, traits->block_elements, traits->block_bytes));
    }
  }
  return types;
}

}  // namespace

void bind_gguf(nb::module_& m) {
  m.def("tensor_types", &tensor_types);
  m.def("catch_bus_errors", &catch_bus_errors);
  nb::class_<GgufMetadata>(m, "GgufMetadata")
      .def(nb::new_(&read_metadata), nb::arg("descriptor"))
      .def_prop_ro("version", &GgufMetadata::version)
      .def("entries", &entries)
      .def("value", &value, nb::arg("key"))
      .def(
          "items",
          [](std::shared_ptr<GgufMetadata> metadata, std::string_view key) {
            return ArrayItems(std::move(metadata), key);
          },
          nb::arg("key"))
      .def("texts", &texts, nb::arg("key"))
      .def("tensors", &tensors)
      .def(
          "rename_tensors",
          [](GgufMetadata& metadata, const std::map<std::string, std::string, std::less<>>& new_names) {
            metadata.tensors().rename(new_names);
          },
          nb::arg("new_names"))
      .def(
          "join_tensors",
          [](GgufMetadata& metadata, const std::string& name, const std::vector<std::string>& matrices) {
            metadata.tensors().join(name, matrices);
          },
          nb::arg("name"), nb::arg("matrices"))
      .def(
          "add_one", [](GgufMetadata& metadata, std::string_view name) { metadata.tensors().add_one(name); },
          nb::arg("name"));
  nb::class_<GgufTexts>(m, "GgufTexts").def("__len__", [](const GgufTexts& texts) {
    return texts.ends.size();
  });
  nb::class_<ArrayItems>(m, "GgufArrayItems").def("read", &ArrayItems::read, nb::arg("max_items"));
  nb::class_<GgufFile>(m, "GgufFile")
      .def(nb::new_(&open), nb::arg("metadata"), nb::arg("others"))
      .def("data", &data, nb::arg("name"))
      .def("check_whole", &GgufFile::check_whole)
      .def("dequantize", &to_floats, nb::arg("name"));
}

}  // namespace puna
