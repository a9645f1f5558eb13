#include "grammars/reply_grammar.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cpu_clock.h"

namespace puna {
namespace {

constexpr size_t kMaxErrorChars = 500;
constexpr size_t kMaxForced = 256;  // more than are drafted at once

// Adds the processor time of this thread until it goes.
class Stopwatch {
 public:
  explicit Stopwatch(double& spent_s) : spent_s_(spent_s), begin_s_(this_threads_cpu_seconds()) {}
  ~Stopwatch() { spent_s_ += this_threads_cpu_seconds() - begin_s_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& spent_s_;
  double begin_s_;
};

// The first line of what llguidance says: the rest is its own state.
std::string reason(const Llguidance& library, LlgMatcher* matcher) {
  const char* text = library.get_error(matcher);
  const std::string whole = text == nullptr ? "unknown" : text;
  return whole.substr(0, std::min(whole.find('\n'), kMaxErrorChars));
}

}  // namespace

CompiledGrammar::CompiledGrammar(std::shared_ptr<const GrammarTokenizer> tokenizer, const std::string& text,
                                 const LlgParserLimits& limits)
    : tokenizer_(std::move(tokenizer)), matcher_(nullptr, tokenizer_->library().free_matcher) {
  if (text.find('\0') != std::string::npos) throw GrammarError("the grammar has a NUL character");
  LlgMatcherInit init;
  std::memset(&init, 0, sizeof init);  // also what later versions may have in its padding
  init.tokenizer = tokenizer_->get();
  init.limits = limits;
  matcher_.reset(tokenizer_->library().new_matcher(&init, "llguidance", text.c_str()));
  if (tokenizer_->library().is_error(matcher_.get()))
    throw GrammarError("the grammar cannot be used: " + reason(tokenizer_->library(), matcher_.get()));
}

MatcherHandle CompiledGrammar::new_matcher() const {
  const Llguidance& library = tokenizer_->library();
  return {library.clone_matcher(matcher_.get()), library.free_matcher};
}

ReplyGrammar::ReplyGrammar(std::shared_ptr<const CompiledGrammar> compiled, double reply_s, double token_s)
    : compiled_(std::move(compiled)),
      matcher_(compiled_->new_matcher()),
      reply_s_(reply_s),
      token_s_(token_s) {}

void ReplyGrammar::accept(std::span<const int32_t> tokens) {
  const Stopwatch watch(spent_s_);
  const size_t begin = tokens_.size();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (library().consume_tokens(matcher_.get(), tokens_.data() + begin, tokens.size()) != 0)
    throw GrammarError(error());
}

std::vector<int32_t> ReplyGrammar::forced() {
  if (library().is_stopped(matcher_.get())) return {};
  const Stopwatch watch(spent_s_);
  uint32_t tokens[kMaxForced];
  const int32_t count = library().compute_ff_tokens(matcher_.get(), tokens, kMaxForced);
  return {tokens, tokens + std::max(count, 0)};
}

size_t ReplyGrammar::num_admitted(std::span<const int32_t> drafts) {
  if (library().is_stopped(matcher_.get())) return 0;
  const Stopwatch watch(spent_s_);
  const std::vector<uint32_t> tokens(drafts.begin(), drafts.end());
  return static_cast<size_t>(
      std::max(library().validate_tokens(matcher_.get(), tokens.data(), tokens.size()), 0));
}

std::span<const std::shared_ptr<TokenMask>> ReplyGrammar::masks(std::span<const int32_t> drafts) {
  const size_t count = 1 + drafts.size();
  while (masks_.size() < count)
    masks_.push_back(std::make_shared<TokenMask>(compiled_->tokenizer().num_tokens()));
  if (spent_s_ > reply_s_ + token_s_ * static_cast<double>(tokens_.size())) {
    for (size_t i = 0; i < count; ++i) masks_[i]->fail("the grammar of the reply takes too long");
  } else {
    const Stopwatch watch(spent_s_);
    const size_t num_taken = fill_all(drafts);
    if (num_taken > 0) take_back(num_taken);
  }
  return {masks_.data(), count};
}

// Returns how many drafts the matcher has taken for that.
size_t ReplyGrammar::fill_all(std::span<const int32_t> drafts) {
  size_t num_taken = 0;
  while (fill(*masks_[num_taken]) && num_taken < drafts.size()) {
    const int32_t draft = drafts[num_taken];
    if (!masks_[num_taken]->allows(draft) || !take(draft)) break;
    ++num_taken;
  }
  for (size_t i = num_taken + 1; i <= drafts.size(); ++i)
    masks_[i]->fail("it stands behind a draft that is not allowed");
  return num_taken;
}

bool ReplyGrammar::fill(TokenMask& mask) {
  if (library().compute_mask_into(matcher_.get(), mask.words(), static_cast<size_t>(mask.num_bytes())) != 0) {
    mask.fail(error());
    return false;
  }
  mask.finish();
  return true;
}

bool ReplyGrammar::take(int32_t draft) {
  const auto token = static_cast<uint32_t>(draft);
  return library().validate_tokens(matcher_.get(), &token, 1) == 1 &&
         library().consume_tokens(matcher_.get(), &token, 1) == 0;
}

void ReplyGrammar::take_back(size_t num_tokens) {
  if (library().rollback(matcher_.get(), num_tokens) == 0) return;
  // What failed was behind drafts: the reply itself may go elsewhere.
  matcher_ = compiled_->new_matcher();
  library().consume_tokens(matcher_.get(), tokens_.data(), tokens_.size());
}

std::string ReplyGrammar::error() const {
  return "the reply cannot go on in its grammar: " + reason(library(), matcher_.get());
}

}  // namespace puna
