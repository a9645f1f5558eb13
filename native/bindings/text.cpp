#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/bytes.h"
#include "text/text_stream.h"
#include "text/token_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

nb::bytes build(const std::vector<nb::bytes>& pieces, const nb::bytes& hidden) {
  std::vector<std::string_view> views;
  views.reserve(pieces.size());
  for (const nb::bytes& piece : pieces) views.push_back(view(piece));
  return to_bytes(TokenTable::build(views, view(hidden)));
}

void init(TextStream* self, const std::shared_ptr<TokenTable>& table, std::vector<std::string> stop_strings) {
  const nb::gil_scoped_release release;
  new (self) TextStream(table, std::move(stop_strings));
}

nb::tuple to_tuple(const TextPiece& piece) {
  nb::list tokens;
  for (const int32_t token : piece.tokens) tokens.append(token);
  return nb::make_tuple(nb::str(piece.text.data(), piece.text.size()), tokens, piece.num_taken, piece.ends);
}

nb::list add_tokens(const std::vector<std::shared_ptr<TextStream>>& streams,
                    const std::vector<std::vector<int32_t>>& tokens, const std::vector<bool>& is_last) {
  if (tokens.size() != streams.size() || is_last.size() != streams.size())
    throw Error("every stream needs its tokens, and whether they are its last");
  std::vector<TextPiece> pieces;
  pieces.reserve(streams.size());
  {
    const nb::gil_scoped_release release;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i] == nullptr) throw Error("a stream is None");
      pieces.push_back(streams[i]->add(tokens[i], is_last[i]));
    }
  }
  nb::list result;
  for (const TextPiece& piece : pieces) result.append(to_tuple(piece));
  return result;
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<TokenTable>(m, "TokenTable")
      .def(
          "__init__", [](TokenTable* self, const nb::bytes& blob) { new (self) TokenTable(view(blob)); },
          "blob"_a)
      .def_static("from_descriptor", &TokenTable::from_descriptor, "fd"_a)
      .def_static("build", &build, "pieces"_a, "hidden"_a)
      .def("__len__", &TokenTable::size)
      .def(
          "token_bytes", [](const TokenTable& table, int64_t token) { return to_bytes(table.bytes(token)); },
          "token"_a);
  nb::class_<TextStream>(m, "TextStream")
      .def("__init__", &init, "table"_a.none(), "stop_strings"_a = std::vector<std::string>());
  m.def("add_tokens", &add_tokens, "streams"_a, "tokens"_a, "is_last"_a);
}

}  // namespace puna
