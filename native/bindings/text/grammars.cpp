#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "bindings/text/held_vocabulary.h"
#include "grammars/reply_grammar.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

using Drafts = std::vector<int32_t>;

void make_tokenizer(GrammarTokenizer* self, std::shared_ptr<Llguidance> library,
                    const std::shared_ptr<HeldVocabulary>& held, std::shared_ptr<WordCutter> words,
                    const std::vector<std::string>& slices) {
  const nb::gil_scoped_release release;
  std::shared_ptr<const Vocabulary> vocabulary(held, &held->vocabulary);
  new (self) GrammarTokenizer(std::move(library), std::move(vocabulary), std::move(words), slices);
}

void compile(CompiledGrammar* self, std::shared_ptr<GrammarTokenizer> tokenizer, const std::string& text,
             size_t max_items_in_row, uint64_t initial_lexer_fuel, uint64_t step_lexer_fuel,
             size_t step_max_items, size_t max_lexer_states, size_t max_grammar_size) {
  const LlgParserLimits limits{max_items_in_row,
                               initial_lexer_fuel,
                               step_lexer_fuel,
                               step_max_items,
                               max_lexer_states,
                               max_grammar_size,
                               true,
                               false};
  const nb::gil_scoped_release release;
  new (self) CompiledGrammar(std::move(tokenizer), text, limits);
}

std::vector<std::shared_ptr<TokenMask>> compute_masks(const std::vector<ReplyGrammar*>& replies,
                                                      const std::vector<Drafts>& drafts) {
  if (replies.size() != drafts.size()) throw Error("replies and drafts go together");
  const nb::gil_scoped_release release;
  std::vector<std::shared_ptr<TokenMask>> masks;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (replies[i] == nullptr) throw Error("a reply is None");
    const auto found = replies[i]->masks(drafts[i]);
    masks.insert(masks.end(), found.begin(), found.end());
  }
  return masks;
}

}  // namespace

void bind_grammars(nb::module_& m) {
  nb::class_<Llguidance>(m, "Llguidance").def(nb::init<const std::string&>(), "path"_a);
  nb::class_<GrammarTokenizer>(m, "GrammarTokenizer")
      .def("__init__", &make_tokenizer, "library"_a, "vocabulary"_a, "words"_a.none(), "slices"_a)
      .def_prop_ro("num_tokens", &GrammarTokenizer::num_tokens);
  nb::class_<CompiledGrammar>(m, "CompiledGrammar")
      .def("__init__", &compile, "tokenizer"_a, "text"_a, nb::kw_only(), "max_items_in_row"_a,
           "initial_lexer_fuel"_a, "step_lexer_fuel"_a, "step_max_items"_a, "max_lexer_states"_a,
           "max_grammar_size"_a);
  nb::class_<ReplyGrammar>(m, "ReplyGrammar", nb::is_weak_referenceable())
      .def(nb::init<std::shared_ptr<CompiledGrammar>, double, double>(), "compiled"_a, nb::kw_only(),
           "reply_s"_a, "token_s"_a)
      .def(
          "accept", [](ReplyGrammar& self, const Drafts& tokens) { self.accept(tokens); }, "tokens"_a)
      .def("forced", &ReplyGrammar::forced)
      .def(
          "num_admitted", [](ReplyGrammar& self, const Drafts& drafts) { return self.num_admitted(drafts); },
          "drafts"_a);
  m.def("compute_masks", &compute_masks, "replies"_a, "drafts"_a);
}

}  // namespace puna
