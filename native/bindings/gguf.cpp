#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>

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
  const uint8_t* source = reader.take(count, sizeof(T), "an array");
  if constexpr (std::is_same_v<T, bool>) {
    for (uint64_t i = 0; i < count; ++i) values[i] = source[i] != 0;
  } else {
    std::memcpy(values.get(), source, count * sizeof(T));
  }
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  // Read-only: the value is cached, and shared by all who ask.
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values.release(), {count}, owner));
}

nb::object to_python(Reader& reader, ValueType type);

nb::list to_list(Reader& reader, ArrayHeader array) {
  nb::list values;
  for (uint64_t i = 0; i < array.count; ++i) values.append(to_python(reader, array.type));
  return values;
}

nb::object array_to_python(Reader& reader) {
  const ArrayHeader array = reader.array_header();
  switch (array.type) {
    case ValueType::kUint8:
      return to_numpy<uint8_t>(reader, array.count);
    case ValueType::kInt8:
      return to_numpy<int8_t>(reader, array.count);
    case ValueType::kUint16:
      return to_numpy<uint16_t>(reader, array.count);
    case ValueType::kInt16:
      return to_numpy<int16_t>(reader, array.count);
    case ValueType::kUint32:
      return to_numpy<uint32_t>(reader, array.count);
    case ValueType::kInt32:
      return to_numpy<int32_t>(reader, array.count);
    case ValueType::kFloat32:
      return to_numpy<float>(reader, array.count);
    case ValueType::kBool:
      return to_numpy<bool>(reader, array.count);
    case ValueType::kUint64:
      return to_numpy<uint64_t>(reader, array.count);
    case ValueType::kInt64:
      return to_numpy<int64_t>(reader, array.count);
    case ValueType::kFloat64:
      return to_numpy<double>(reader, array.count);
    case ValueType::kString:
    case ValueType::kArray:
      return to_list(reader, array);
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
      return array_to_python(reader);
    case ValueType::kUint64:
      return nb::int_(reader.number<uint64_t>(kNumber));
    case ValueType::kInt64:
      return nb::int_(reader.number<int64_t>(kNumber));
    case ValueType::kFloat64:
      return nb::float_(reader.number<double>(kNumber));
  }
  return nb::none();
}

std::shared_ptr<GgufFile> open(int descriptor) {
  const nb::gil_scoped_release release;
  return GgufFile::open(descriptor);
}

nb::list tensors(const GgufFile& file) {
  nb::list out;
  for (const TensorEntry& tensor : file.tensors()) {
    nb::list shape;
    for (const int64_t extent : tensor.shape) shape.append(extent);
    out.append(nb::make_tuple(tensor.name, type_name(tensor.type), nb::tuple(shape), file.offset(tensor),
                              tensor.num_bytes));
  }
  return out;
}

using ByteView = nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>, nb::c_contig>;
using FloatArray = nb::ndarray<nb::numpy, float, nb::c_contig>;

ByteView data(nb::handle_t<GgufFile> self, std::string_view name) {
  const TensorEntry& tensor = nb::cast<const GgufFile&>(self).tensor(name);
  if (type_traits(tensor.type) == nullptr)
    throw Error("tensor " + quoted(name) + ": " + type_name(tensor.type) + " is not supported");
  return ByteView(tensor.data, {tensor.num_bytes}, self);
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
    dequantize(tensor.type, tensor.data, values.get(), static_cast<int64_t>(count));
  }
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return FloatArray(values.release(), shape.size(), shape.data(), owner);
}

}  // namespace

void bind_gguf(nb::module_& m) {
  nb::class_<GgufFile>(m, "GgufFile")
      .def(nb::new_(&open), nb::arg("descriptor"))
      .def_prop_ro("version", &GgufFile::version)
      .def("keys",
           [](const GgufFile& file) {
             nb::list keys;
             for (const MetadataEntry& entry : file.metadata()) keys.append(to_text(entry.key));
             return keys;
           })
      .def(
          "value",
          [](const GgufFile& file, std::string_view key) {
            const MetadataEntry& entry = file.metadata(key);
            Reader reader = file.value(entry);
            return to_python(reader, entry.type);
          },
          nb::arg("key"))
      .def("tensors", &tensors)
      .def("data", &data, nb::arg("name"))
      .def("dequantize", &to_floats, nb::arg("name"));
}

}  // namespace puna
