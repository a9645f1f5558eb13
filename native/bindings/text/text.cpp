#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/bytes.h"
#include "text/advance.h"
#include "text/token_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::bytes build(const std::vector<nb::bytes>& pieces, const nb::bytes& hidden) {
  std::vector<std::string_view> views;
  views.reserve(pieces.size());
  for (const nb::bytes& piece : pieces) views.push_back(view(piece));
  return to_bytes(TokenTable::build(views, view(hidden)));
}

void init(TextStream* self, const std::shared_ptr<TokenTable>& table, std::vector<std::string> stop_strings,
          std::vector<int64_t> stop_tokens, std::vector<int64_t> shown_tokens) {
  const nb::gil_scoped_release release;
  new (self) TextStream(table, std::move(stop_strings), std::move(stop_tokens), std::move(shown_tokens));
}

nb::list to_list(std::span<const int32_t> tokens) {
  nb::list list;
  for (const int32_t token : tokens) list.append(token);
  return list;
}

nb::tuple to_tuple(const Advance& reply, std::span<const int32_t> drawn) {
  nb::object end = nb::none();
  if (reply.end != ReplyEnd::kNone) end = nb::str(reply.end == ReplyEnd::kStop ? "stop" : "length");
  const std::string& text = reply.piece.text;
  const auto kept = drawn.first(reply.num_kept);
  const nb::list tokens = to_list(kept);
  const bool shows_them = std::ranges::equal(kept, reply.piece.tokens);
  return nb::make_tuple(tokens, reply.num_drawn, end, nb::str(text.data(), text.size()),
                        shows_them ? tokens : to_list(reply.piece.tokens));
}

nb::list add_tokens(const std::vector<TextStream*>& streams, const Tokens& tokens, const Tokens& starts,
                    const std::vector<int64_t>& num_left) {
  const size_t count = streams.size();
  if (starts.size() != count + 1 || num_left.size() != count)
    throw Error("every stream needs its tokens, and how many it may still have");
  std::vector<std::span<const int32_t>> drawn;
  drawn.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t begin = starts.data()[i], end = starts.data()[i + 1];
    if (begin < 0 || end < begin || static_cast<size_t>(end) > tokens.size())
      throw Error("the starts do not fit the tokens");
    if (streams[i] == nullptr) throw Error("a stream is None");
    drawn.emplace_back(tokens.data() + begin, static_cast<size_t>(end - begin));
  }
  std::vector<Advance> replies;
  replies.reserve(count);
  {
    const nb::gil_scoped_release release;
    for (size_t i = 0; i < count; ++i) replies.push_back(advance(*streams[i], drawn[i], num_left[i]));
  }
  nb::list result;
  for (size_t i = 0; i < count; ++i) result.append(to_tuple(replies[i], drawn[i]));
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
      .def("__init__", &init, "table"_a.none(), "stop_strings"_a = std::vector<std::string>(),
           "stop_tokens"_a = std::vector<int64_t>(), "shown_tokens"_a = std::vector<int64_t>())
      .def_prop_ro("stop_string", &TextStream::stop_string);
  m.def("add_tokens", &add_tokens, "streams"_a, "tokens"_a.noconvert(), "starts"_a.noconvert(), "num_left"_a);
}

}  // namespace puna
