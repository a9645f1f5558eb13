#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "tokenizer/byte_pairs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

std::string to_string(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

void build(BytePairs* self, const nb::bytes& tokens, const nb::bytes& merges, const nb::bytes& alphabet,
           bool whole_words) {
  std::string texts = to_string(tokens);
  const std::string pairs = to_string(merges), characters = to_string(alphabet);
  const nb::gil_scoped_release release;
  new (self) BytePairs(std::move(texts), pairs, characters, whole_words);
}

nb::list encode(const BytePairs& pairs, const nb::list& words) {
  std::string text;
  std::vector<size_t> ends;
  for (const nb::handle word : words) {
    Py_ssize_t size;
    const char* data = PyUnicode_AsUTF8AndSize(word.ptr(), &size);
    if (data == nullptr) throw nb::python_error();
    if (size > std::numeric_limits<int32_t>::max()) throw Error("the text is too long");
    text.append(data, static_cast<size_t>(size));
    ends.push_back(text.size());
  }
  std::vector<int32_t> tokens;
  {
    const nb::gil_scoped_release release;
    size_t begin = 0;
    for (const size_t end : ends) {
      pairs.encode(std::string_view(text).substr(begin, end - begin), tokens);
      begin = end;
    }
  }
  nb::list result;
  for (const int32_t token : tokens) result.append(token);
  return result;
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<BytePairs>(m, "BytePairs")
      .def("__init__", &build, "tokens"_a, "merges"_a, "alphabet"_a, "whole_words"_a)
      .def("encode", &encode, "words"_a);
}

}  // namespace puna
