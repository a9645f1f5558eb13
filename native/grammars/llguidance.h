// The C interface of llguidance, as far as it is used here: its functions, found in the shared object of its
// Python package, which exports them. So neither its header nor a library to link with is needed.
// https://github.com/guidance-ai/llguidance/blob/main/parser/llguidance.h (1.9)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace puna {

struct LlgTokenizer;
struct LlgMatcher;

using LlgTokenizeFn = size_t (*)(const void* user_data, const uint8_t* bytes, size_t num_bytes,
                                 uint32_t* tokens, size_t capacity);

// LlgTokenizerInitV2: it says its own size, so that later versions know which fields it has.
struct LlgTokenizerInit {
  size_t struct_size;
  uint32_t vocab_size, end_token;
  const uint32_t* token_sizes;
  const uint8_t* token_bytes;  // one token's behind the other's
  const char* tokenizer_json;
  bool tokenize_assumes_string;  // tokenize_fn is given valid UTF-8 alone
  LlgTokenizeFn tokenize_fn;     // for any thread
  bool is_greedy;
  const void* tokenize_user_data;
  const char* const* slices;  // up to a null
  const uint32_t* more_end_tokens;
  uint32_t num_more_end_tokens;
};

struct LlgParserLimits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel, step_lexer_fuel;
  size_t step_max_items, max_lexer_states, max_grammar_size;
  bool precompute_large_lexemes, verbose_errors;
};

struct LlgMatcherInit {
  const LlgTokenizer* tokenizer;
  uint32_t log_buffer_level, log_stderr_level;
  bool ff_tokens_ok, backtrack_ok;
  LlgParserLimits limits;
};

// Functions return -1 where they fail; a matcher that failed says why, and does nothing more.
struct Llguidance {
  // path: of the shared object, which is never unloaded. Error if it is not there, or its interface another.
  explicit Llguidance(const std::string& path);

  void (*set_defaults)(LlgMatcherInit*, const LlgTokenizer*);
  LlgTokenizer* (*new_tokenizer)(const LlgTokenizerInit*, char* error, size_t error_capacity);
  void (*free_tokenizer)(LlgTokenizer*);
  LlgMatcher* (*new_matcher)(const LlgMatcherInit*, const char* kind, const char* grammar);
  LlgMatcher* (*clone_matcher)(const LlgMatcher*);
  void (*free_matcher)(LlgMatcher*);
  bool (*is_error)(const LlgMatcher*);
  const char* (*get_error)(LlgMatcher*);
  bool (*is_stopped)(const LlgMatcher*);
  int32_t (*compute_mask_into)(LlgMatcher*, uint32_t* words, size_t num_bytes);
  int32_t (*consume_tokens)(LlgMatcher*, const uint32_t*, size_t);
  int32_t (*rollback)(LlgMatcher*, size_t);
  int32_t (*validate_tokens)(LlgMatcher*, const uint32_t*, size_t);
  int32_t (*compute_ff_tokens)(LlgMatcher*, uint32_t* tokens, size_t capacity);

 private:
  void check_layout() const;
};

}  // namespace puna
