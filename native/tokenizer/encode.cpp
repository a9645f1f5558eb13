#include "tokenizer/encode.h"

#include "tokenizer/byte_pairs.h"
#include "tokenizer/character_pairs.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_piece.h"
#include "vocabulary/token_finder.h"

namespace puna {
namespace {

// encode_text: of what is no special token.
template <typename EncodeText>
void encode_pieces(const Vocabulary& vocabulary, std::string_view text, bool parse_special,
                   std::vector<int32_t>& tokens, EncodeText encode_text) {
  size_t begin = 0;
  for (const FoundToken& found : find_tokens(vocabulary.finder(parse_special), vocabulary.traits(), text)) {
    if (found.begin > begin) encode_text(text.substr(begin, found.begin - begin));
    tokens.push_back(found.token);
    begin = found.end;
  }
  if (begin < text.size()) encode_text(text.substr(begin));
}

}  // namespace

std::vector<int32_t> encode(const Vocabulary& vocabulary, const WordCutter* words, std::string_view text,
                            bool parse_special, bool is_within) {
  std::vector<int32_t> tokens;
  switch (vocabulary.algorithm()) {
    case Algorithm::kBytePairs: {
      BytePairs model(vocabulary);
      encode_pieces(vocabulary, text, parse_special, tokens, [&](std::string_view piece) {
        uint32_t begin = 0;
        for (const uint32_t end : words->ends(piece)) {
          model.encode(piece.substr(begin, end - begin), tokens);
          begin = end;
        }
      });
      break;
    }
    case Algorithm::kCharacterPairs: {
      CharacterPairs model(vocabulary, *words);
      encode_pieces(vocabulary, text, parse_special, tokens,
                    [&](std::string_view piece) { model.encode(piece, tokens); });
      break;
    }
    case Algorithm::kSentencePiece: {
      SentencePiece model(vocabulary);
      const bool with_prefix = vocabulary.has(kAddSpacePrefix) && !is_within;
      encode_pieces(vocabulary, text, parse_special, tokens,
                    [&](std::string_view piece) { model.encode(piece, with_prefix, tokens); });
      break;
    }
    case Algorithm::kUnigram: {
      Unigram model(vocabulary);
      const bool with_prefix = vocabulary.has(kAddSpacePrefix) && !is_within;
      encode_pieces(vocabulary, text, parse_special, tokens,
                    [&](std::string_view piece) { model.encode(piece, with_prefix, tokens); });
      break;
    }
    case Algorithm::kWordPiece: {
      WordPiece model(vocabulary);
      encode_pieces(vocabulary, text, parse_special, tokens,
                    [&](std::string_view piece) { model.encode(piece, tokens); });
      break;
    }
  }
  return tokens;
}

}  // namespace puna
