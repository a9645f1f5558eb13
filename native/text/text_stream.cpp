#include "text/text_stream.h"

#include <algorithm>

namespace puna {
namespace {

// Nobody waits for the end of the context where a model says the same again and again.
constexpr int kMostRepeats = 30;
constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string_view strip(std::string_view bytes) {
  const size_t begin = bytes.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return bytes.substr(begin, bytes.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

TextStream::TextStream(std::shared_ptr<const TokenTable> table, std::vector<std::string> stop_strings,
                       std::vector<int64_t> stop_tokens, std::vector<int64_t> shown_tokens)
    : table_(std::move(table)), stop_tokens_(std::move(stop_tokens)), shown_tokens_(std::move(shown_tokens)) {
  std::erase(stop_strings, std::string());
  if (!stop_strings.empty()) stops_.emplace(std::move(stop_strings));
}

TextPiece TextStream::add(std::span<const int32_t> tokens, bool is_last) {
  TextPiece piece;
  if (table_ == nullptr) {
    piece.tokens.assign(tokens.begin(), tokens.end());
    piece.num_taken = tokens.size();
    return piece;
  }
  while (piece.num_taken < tokens.size() && !piece.ends) piece.ends = take(tokens[piece.num_taken++]);
  const bool is_over = piece.ends || is_last;
  release(is_over || !stops_ ? text_.size() : text_.size() - stops_->num_matched(stop_state_), piece);
  if (is_over && stop_string_.empty()) release_tokens(tokens_.size(), piece);
  return piece;
}

std::string_view TextStream::text_of(int32_t token) const {
  const bool is_shown = std::ranges::find(shown_tokens_, token) != shown_tokens_.end();
  return is_shown ? table_->bytes(token) : table_->visible_bytes(token);
}

// Whether it ends the reply.
bool TextStream::take(int32_t token) {
  const std::string_view bytes = text_of(token);
  tokens_.push_back({token, num_released_ + text_.size()});
  decoder_.decode(bytes, text_);
  return find_stop() || repeats(bytes);
}

// A stop string that is found is cut, with all behind it.
bool TextStream::find_stop() {
  if (!stops_) return false;
  while (num_searched_ < text_.size()) {
    stop_state_ = stops_->next(stop_state_, text_[num_searched_++]);
    if (const size_t found = stops_->num_found(stop_state_); found > 0) {
      stop_string_ = text_.substr(num_searched_ - found, found);
      text_.resize(num_searched_ - found);
      return true;
    }
  }
  return false;
}

bool TextStream::repeats(std::string_view bytes) {
  const std::string_view word = strip(bytes);
  num_repeats_ = num_repeats_ > 0 && word == last_word_ ? num_repeats_ + 1 : 1;
  last_word_ = word;
  return num_repeats_ > kMostRepeats;
}

// A token whose character is incomplete has no text: it goes with the one that completes it.
void TextStream::release(size_t num_bytes, TextPiece& piece) {
  piece.text.assign(text_, 0, num_bytes);
  text_.erase(0, num_bytes);
  num_searched_ -= std::min(num_bytes, num_searched_);
  num_released_ += num_bytes;
  const auto held = std::find_if(tokens_.begin(), tokens_.end(),
                                 [this](const HeldToken& t) { return t.start >= num_released_; });
  release_tokens(static_cast<size_t>(held - tokens_.begin()), piece);
}

void TextStream::release_tokens(size_t count, TextPiece& piece) {
  const auto end = tokens_.begin() + static_cast<int64_t>(count);
  for (auto held = tokens_.begin(); held != end; ++held) piece.tokens.push_back(held->token);
  tokens_.erase(tokens_.begin(), end);
}

}  // namespace puna
