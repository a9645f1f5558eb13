#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/bytes.h"
#include "bindings/text/held_vocabulary.h"
#include "gguf/metadata.h"
#include "tokenizer/encode.h"
#include "tokenizer/token_bytes.h"
#include "vocabulary/builder.h"
#include "vocabulary/token_finder.h"
#include "words/word_cutter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

// Python's texts as the file has them. `kept` holds what had to be encoded anew: texts with bytes that are no
// UTF-8, which surrogateescape keeps.
std::vector<std::string_view> file_texts(const nb::list& list, std::vector<nb::object>& kept) {
  std::vector<std::string_view> texts;
  texts.reserve(list.size());
  for (const nb::handle item : list) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
    if (data == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw nb::python_error();
      PyErr_Clear();
      kept.push_back(nb::steal(PyUnicode_AsEncodedString(item.ptr(), "utf-8", "surrogateescape")));
      if (!kept.back().is_valid()) throw nb::python_error();
      data = PyBytes_AsString(kept.back().ptr());
      size = PyBytes_Size(kept.back().ptr());
    }
    texts.emplace_back(data, static_cast<size_t>(size));
  }
  return texts;
}

void make_builder(VocabularyBuilder* self, const nb::list& list) {
  std::vector<nb::object> kept;
  const std::vector<std::string_view> texts = file_texts(list, kept);
  const nb::gil_scoped_release release;
  new (self) VocabularyBuilder(texts);
}

void make_builder_of_file(VocabularyBuilder* self, const GgufTexts& texts) {
  const nb::gil_scoped_release release;
  new (self) VocabularyBuilder(texts.items());
}

void set_traits(VocabularyBuilder& builder, const nb::bytes& traits) {
  const std::string_view bytes = view(traits);
  builder.set_traits({bytes.begin(), bytes.end()});
}

void set_conventions(VocabularyBuilder& builder, uint32_t flags, std::optional<int32_t> bos,
                     std::optional<int32_t> eos, std::optional<int32_t> separator,
                     std::optional<int32_t> unknown) {
  builder.set_conventions(
      {bos.value_or(-1), eos.value_or(-1), separator.value_or(-1), unknown.value_or(-1), flags});
}

template <typename Make>
nb::bytes made(Make make) {
  std::vector<uint8_t> blob;
  {
    const nb::gil_scoped_release release;
    blob = make();
  }
  return nb::bytes(blob.data(), blob.size());
}

nb::bytes byte_pairs(const VocabularyBuilder& builder, const nb::list& list, std::string_view word_pattern) {
  std::vector<nb::object> kept;
  const std::vector<std::string_view> merges = file_texts(list, kept);
  return made([&] { return builder.byte_pairs(merges, word_pattern); });
}

nb::bytes byte_pairs_of_file(const VocabularyBuilder& builder, const GgufTexts& merges,
                             std::string_view word_pattern) {
  return made([&] { return builder.byte_pairs(merges.items(), word_pattern); });
}

nb::bytes character_pairs(const VocabularyBuilder& builder, const nb::list& list,
                          std::string_view word_pattern) {
  std::vector<nb::object> kept;
  const std::vector<std::string_view> merges = file_texts(list, kept);
  return made([&] { return builder.character_pairs(merges, word_pattern); });
}

nb::bytes character_pairs_of_file(const VocabularyBuilder& builder, const GgufTexts& merges,
                                  std::string_view word_pattern) {
  return made([&] { return builder.character_pairs(merges.items(), word_pattern); });
}

std::vector<float> floats(const nb::bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.c_str(), values.size() * sizeof(float));
  return values;
}

nb::bytes sentencepiece(const VocabularyBuilder& builder, const nb::bytes& scores) {
  return made([&] { return builder.sentencepiece(floats(scores)); });
}

nb::bytes unigram(const VocabularyBuilder& builder, const nb::bytes& scores, float unknown_score) {
  return made([&] { return builder.unigram(floats(scores), unknown_score); });
}

size_t checked(const Vocabulary& vocabulary, int64_t token) {
  if (token < 0 || token >= static_cast<int64_t>(vocabulary.size()))
    throw Error("token " + std::to_string(token) + " is not in the vocabulary of " +
                std::to_string(vocabulary.size()));
  return static_cast<size_t>(token);
}

nb::list to_list(const std::vector<int32_t>& tokens) {
  nb::list result = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(tokens.size())));
  for (size_t i = 0; i < tokens.size(); ++i)
    PyList_SetItem(result.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLong(tokens[i]));
  return result;
}

std::string_view checked_text(const nb::bytes& bytes) {
  if (bytes.size() > size_t{std::numeric_limits<int32_t>::max()} / 4) throw Error("the text is too long");
  if (!is_utf8(view(bytes))) throw Error("the text is no UTF-8");
  return view(bytes);
}

nb::list find_special(const HeldVocabulary& held, const nb::bytes& bytes, bool parse_special) {
  const std::string_view text = checked_text(bytes);
  std::vector<FoundToken> found;
  {
    const nb::gil_scoped_release release;
    found = find_tokens(held.vocabulary.finder(parse_special), held.vocabulary.traits(), text);
  }
  nb::list result;
  for (const FoundToken& token : found) result.append(nb::make_tuple(token.begin, token.end, token.token));
  return result;
}

nb::list encode_text(const HeldVocabulary& held, const nb::bytes& bytes, bool parse_special,
                     const WordCutter* words, bool is_within) {
  const std::string_view text = checked_text(bytes);
  if (is_pairs(held.vocabulary.algorithm()) != (words != nullptr))
    throw Error("words are cut for byte pairs, and only for them");
  std::vector<int32_t> tokens;
  {
    const nb::gil_scoped_release release;
    tokens = encode(held.vocabulary, words, text, parse_special, is_within);
  }
  return to_list(tokens);
}

void make_word_cutter(WordCutter* self, const nb::list& list, bool digits_in_threes, bool numbers_in_threes) {
  std::vector<nb::object> kept;
  new (self) WordCutter(file_texts(list, kept), digits_in_threes, numbers_in_threes);
}

nb::list word_ends(const WordCutter& words, const nb::bytes& bytes) {
  const std::string_view text = checked_text(bytes);
  std::vector<uint32_t> ends;
  {
    const nb::gil_scoped_release release;
    ends = words.ends(text);
  }
  nb::list result;
  for (const uint32_t end : ends) result.append(end);
  return result;
}

std::optional<int32_t> optional_id(int32_t id) { return id < 0 ? std::nullopt : std::optional(id); }

void bind_vocabulary(nb::module_& m) {
  nb::class_<HeldVocabulary>(m, "Vocabulary")
      .def(nb::init<nb::bytes>(), "blob"_a)
      .def_static(
          "from_descriptor", [](int fd) { return new HeldVocabulary(fd); }, "fd"_a)
      .def_prop_ro("size", [](const HeldVocabulary& v) { return v.vocabulary.size(); })
      .def_prop_ro("bos_id",
                   [](const HeldVocabulary& v) { return optional_id(v.vocabulary.conventions().bos); })
      .def_prop_ro("eos_id",
                   [](const HeldVocabulary& v) { return optional_id(v.vocabulary.conventions().eos); })
      .def_prop_ro("separator_id",
                   [](const HeldVocabulary& v) { return optional_id(v.vocabulary.conventions().separator); })
      .def_prop_ro("conventions", [](const HeldVocabulary& v) { return v.vocabulary.conventions().flags; })
      .def_prop_ro("word_pattern",
                   [](const HeldVocabulary& v) { return std::string(v.vocabulary.word_pattern()); })
      .def("traits",
           [](const HeldVocabulary& v) {
             return nb::bytes(v.vocabulary.traits().data(), v.vocabulary.traits().size());
           })
      .def(
          "text",
          [](const HeldVocabulary& v, int64_t token) {
            return to_bytes(v.vocabulary.text(checked(v.vocabulary, token)));
          },
          "token"_a)
      .def(
          "token_bytes",
          [](const HeldVocabulary& v, int64_t token) {
            std::string bytes;
            append_token_bytes(v.vocabulary, checked(v.vocabulary, token), bytes);
            return to_bytes(bytes);
          },
          "token"_a)
      .def(
          "find",
          [](const HeldVocabulary& v, const nb::bytes& text) {
            return optional_id(v.vocabulary.find(view(text)));
          },
          "text"_a)
      .def("token_table", [](const HeldVocabulary& v) { return to_bytes(make_token_table(v.vocabulary)); })
      .def("find_special", &find_special, "text"_a, "parse_special"_a)
      .def("encode", &encode_text, "text"_a, "parse_special"_a, "words"_a.none(), "is_within"_a = false);
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<WordCutter>(m, "WordCutter")
      .def("__init__", &make_word_cutter, "patterns"_a, "digits_in_threes"_a = false,
           "numbers_in_threes"_a = false)
      .def("ends", &word_ends, "text"_a);
  nb::class_<VocabularyBuilder>(m, "VocabularyBuilder")
      .def("__init__", &make_builder, "texts"_a)
      .def("__init__", &make_builder_of_file, "texts"_a)
      .def_prop_ro("size", &VocabularyBuilder::size)
      .def(
          "find",
          [](const VocabularyBuilder& builder, std::string_view text) {
            return optional_id(builder.find(text));
          },
          "text"_a)
      .def("set_traits", &set_traits, "traits"_a)
      .def("set_conventions", &set_conventions, "flags"_a, nb::kw_only(), "bos_id"_a = nb::none(),
           "eos_id"_a = nb::none(), "separator_id"_a = nb::none(), "unknown_id"_a = nb::none())
      .def("byte_pairs", &byte_pairs, "merges"_a, "word_pattern"_a)
      .def("byte_pairs", &byte_pairs_of_file, "merges"_a, "word_pattern"_a)
      .def("character_pairs", &character_pairs, "merges"_a, "word_pattern"_a)
      .def("character_pairs", &character_pairs_of_file, "merges"_a, "word_pattern"_a)
      .def("sentencepiece", &sentencepiece, "scores"_a)
      .def(
          "set_char_map",
          [](VocabularyBuilder& builder, const nb::bytes& char_map) { builder.set_char_map(view(char_map)); },
          "char_map"_a)
      .def("unigram", &unigram, "scores"_a, "unknown_score"_a)
      .def("word_pieces",
           [](const VocabularyBuilder& builder) { return made([&] { return builder.word_pieces(); }); });
  bind_vocabulary(m);
}

}  // namespace puna
