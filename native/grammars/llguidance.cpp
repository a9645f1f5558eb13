#include "grammars/llguidance.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace puna {
namespace {

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Error(std::string("this llguidance has no ") + name);
}

}  // namespace

Llguidance::Llguidance(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) throw Error(std::string("llguidance cannot be loaded: ") + dlerror());
  find(library, "llg_constraint_init_set_defaults", set_defaults);
  find(library, "llg_new_tokenizer_v2", new_tokenizer);
  find(library, "llg_free_tokenizer", free_tokenizer);
  find(library, "llg_new_matcher", new_matcher);
  find(library, "llg_clone_matcher", clone_matcher);
  find(library, "llg_free_matcher", free_matcher);
  find(library, "llg_matcher_is_error", is_error);
  find(library, "llg_matcher_get_error", get_error);
  find(library, "llg_matcher_is_stopped", is_stopped);
  find(library, "llg_matcher_compute_mask_into", compute_mask_into);
  find(library, "llg_matcher_consume_tokens", consume_tokens);
  find(library, "llg_matcher_rollback", rollback);
  find(library, "llg_matcher_validate_tokens", validate_tokens);
  find(library, "llg_matcher_compute_ff_tokens", compute_ff_tokens);
  check_layout();
}

// A matcher's settings do not say their size. A version that has more or others would read what is not there.
// It is asked for its defaults instead, in a space that is large enough for any: it must have written so many
// bytes, the tokenizer first, and in the limits nothing that cannot be one.
void Llguidance::check_layout() const {
  struct {
    LlgMatcherInit init;
    std::array<std::byte, 1024> behind;
  } space;
  constexpr std::byte kUntouched{0xA5};
  std::memset(&space, static_cast<int>(kUntouched), sizeof space);
  const auto* tokenizer = reinterpret_cast<const LlgTokenizer*>(&space);
  set_defaults(&space.init, tokenizer);
  const LlgParserLimits& limits = space.init.limits;
  uint8_t flags[2];  // as bytes: what is neither 0 nor 1 must not be read as a bool
  std::memcpy(&flags[0], &limits.precompute_large_lexemes, 1);
  std::memcpy(&flags[1], &limits.verbose_errors, 1);
  const uint64_t counts[] = {limits.max_items_in_row, limits.initial_lexer_fuel, limits.step_lexer_fuel,
                             limits.step_max_items,   limits.max_lexer_states,   limits.max_grammar_size};
  const bool is_as_expected =
      space.init.tokenizer == tokenizer &&
      std::all_of(std::begin(counts), std::end(counts), [](uint64_t n) { return n > 0 && n < 1u << 30; }) &&
      std::all_of(std::begin(flags), std::end(flags), [](uint8_t flag) { return flag <= 1; }) &&
      std::all_of(space.behind.begin(), space.behind.end(), [](std::byte b) { return b == kUntouched; });
  if (!is_as_expected) throw Error("this version of llguidance is not known: its settings are laid out anew");
}

}  // namespace puna
