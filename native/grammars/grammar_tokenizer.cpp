#include "grammars/grammar_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/encode.h"
#include "tokenizer/token_bytes.h"

namespace puna {
namespace {

constexpr char kControlMark = '\xFF';  // a token that begins with it is no text

bool is_control(const Vocabulary& vocabulary, size_t token) {
  const TokenKind kind = vocabulary.kind(token);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

// All tokens, one behind the other.
struct Pieces {
  std::string bytes;
  std::vector<uint32_t> sizes, ends;

  explicit Pieces(const Vocabulary& vocabulary) {
    sizes.reserve(vocabulary.size());
    for (size_t token = 0; token < vocabulary.size(); ++token) {
      const size_t begin = bytes.size();
      append_token_bytes(vocabulary, token, bytes);
      if (is_control(vocabulary, token) && (bytes.size() == begin || bytes[begin] != kControlMark))
        bytes.insert(begin, 1, kControlMark);
      sizes.push_back(static_cast<uint32_t>(bytes.size() - begin));
      if ((vocabulary.traits()[token] & kEndsGeneration) != 0) ends.push_back(static_cast<uint32_t>(token));
    }
    if (ends.empty()) throw Error("the model's vocabulary has no token that ends a reply");
  }
};

size_t tokenize(const void* user_data, const uint8_t* bytes, size_t num_bytes, uint32_t* tokens,
                size_t capacity) noexcept {
  try {
    const std::string_view text(reinterpret_cast<const char*>(bytes), num_bytes);
    const std::vector<int32_t> found = static_cast<const GrammarTokenizer*>(user_data)->encode(text);
    std::copy_n(found.begin(), std::min(found.size(), capacity), tokens);
    return found.size();
  } catch (...) {
    return 0;  // no exception may cross llguidance; without tokens nothing is forced
  }
}

}  // namespace

GrammarTokenizer::GrammarTokenizer(std::shared_ptr<const Llguidance> library,
                                   std::shared_ptr<const Vocabulary> vocabulary,
                                   std::shared_ptr<const WordCutter> words,
                                   const std::vector<std::string>& slices)
    : library_(std::move(library)),
      vocabulary_(std::move(vocabulary)),
      words_(std::move(words)),
      tokenizer_(nullptr, library_->free_tokenizer) {
  if (is_pairs(vocabulary_->algorithm()) != (words_ != nullptr))
    throw Error("words are cut for byte pairs, and only for them");
  note_single_bytes();
  const Pieces pieces(*vocabulary_);
  std::vector<const char*> texts;
  for (const std::string& slice : slices) texts.push_back(slice.c_str());
  texts.push_back(nullptr);
  LlgTokenizerInit init{};
  init.struct_size = sizeof init;
  init.vocab_size = static_cast<uint32_t>(vocabulary_->size());
  init.end_token = pieces.ends.front();
  init.token_sizes = pieces.sizes.data();
  init.token_bytes = reinterpret_cast<const uint8_t*>(pieces.bytes.data());
  init.tokenize_assumes_string = true;
  init.tokenize_fn = tokenize;
  init.tokenize_user_data = this;
  init.slices = texts.data();
  init.more_end_tokens = pieces.ends.data() + 1;
  init.num_more_end_tokens = static_cast<uint32_t>(pieces.ends.size() - 1);
  std::array<char, 500> error{};
  tokenizer_.reset(library_->new_tokenizer(&init, error.data(), error.size()));
  if (tokenizer_ == nullptr) throw Error(std::string("the vocabulary cannot hold grammars: ") + error.data());
}

std::vector<int32_t> GrammarTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens = puna::encode(*vocabulary_, words_.get(), text, false, true);
  const auto token_of = [this](char byte) { return single_bytes_[static_cast<uint8_t>(byte)]; };
  if (stand_for(tokens, text) ||
      std::any_of(text.begin(), text.end(), [&](char byte) { return token_of(byte) < 0; }))
    return tokens;
  tokens.resize(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(), token_of);
  return tokens;
}

bool GrammarTokenizer::stand_for(const std::vector<int32_t>& tokens, std::string_view text) const {
  std::string bytes;
  for (const int32_t token : tokens) append_token_bytes(*vocabulary_, static_cast<size_t>(token), bytes);
  return bytes == text;
}

void GrammarTokenizer::note_single_bytes() {
  single_bytes_.fill(-1);
  std::string bytes;
  for (size_t token = 0; token < vocabulary_->size(); ++token) {
    if (is_control(*vocabulary_, token)) continue;
    bytes.clear();
    append_token_bytes(*vocabulary_, token, bytes);
    if (bytes.size() == 1) single_bytes_[static_cast<uint8_t>(bytes[0])] = static_cast<int32_t>(token);
  }
}

}  // namespace puna
