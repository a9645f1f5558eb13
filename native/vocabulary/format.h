// A vocabulary as one block of bytes that processes map and share: a header, then arrays without pointers.
// Of this process and its children only: never kept in a file, so there is no version to be compatible with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace puna {

// As numbered in `tokenizer.ggml.token_type` of GGUF.
enum class TokenKind : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Properties of a token, in one byte: its kind, and these bits.
constexpr uint8_t kKindMask = 7;
constexpr uint8_t kEndsGeneration = 8;
constexpr uint8_t kStripsSpaceAfter = 16;  // swallows the whitespace behind it
constexpr uint8_t kStripsSpaceBefore = 32;
constexpr uint8_t kAllTraits = kKindMask | kEndsGeneration | kStripsSpaceAfter | kStripsSpaceBefore;

enum class Algorithm : uint32_t { kBytePairs, kCharacterPairs, kSentencePiece, kUnigram, kWordPiece };

// Of words that patterns cut.
constexpr bool is_pairs(Algorithm algorithm) {
  return algorithm == Algorithm::kBytePairs || algorithm == Algorithm::kCharacterPairs;
}

enum Convention : uint32_t {
  kAddBos = 1,
  kAddEos = 2,
  kAddSeparator = 4,    // between two texts
  kAddSpacePrefix = 8,  // SentencePiece, unigram: in front of text that follows nothing or a special token
  kWholeWords = 16,     // byte pairs: a word that is a token is that token, whatever merges
  kLowercase = 32,      // WordPiece, character pairs
  kStripAccents = 64,   // WordPiece
  kEndWithSeparator = 128,  // a text, whatever is said of EOS
  kMergeSpaces = 256,       // unigram: of several in a row one stays, and words begin with one
  kWriteSpaces = 512,       // character pairs: as U+2581
  kWholeNewlines = 1024,    // character pairs: as kWholeWords, of words of newlines
  kBeginWithSpace = 2048,   // character pairs: each word
  kDropSpaces = 4096,       // character pairs: words of white space
};

// Settings of a model's tokenizer besides its tokens.
struct Conventions {
  int32_t bos = -1, eos = -1, separator = -1, unknown = -1;  // -1: none
  uint32_t flags = 0;

  bool has(Convention flag) const { return (flags & flag) != 0; }
};

// The largest vocabularies in use have 2^18 tokens, and tokens of a few hundred bytes.
constexpr size_t kMaxTokens = size_t{1} << 22;
constexpr size_t kMaxMerges = size_t{1} << 22;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxSoughtBytes = 512;  // a token where each beginning of a text is looked up
constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kMaxSpecialBytes = size_t{2} << 20;

// A slot of the index of texts; open addressing, linear probing from where the hash points.
struct TextSlot {
  uint32_t fingerprint = 0;  // the hash's lower half
  int32_t token = -1;        // -1: free
};

// The token that two neighbours become; a slot of the table of merges.
struct MergeSlot {
  uint32_t left = 0, right = 0;
  int32_t rank = -1;  // -1: free
  int32_t token = -1;
};

// A state of an automaton that reads text backwards: the text ahead begins as some tokens end.
struct FinderNode {
  uint32_t first_child = 0;   // those of a node end where the next node's begin, and ascend by label
  uint32_t fail = 0;          // the longest state that this one begins with, another than itself
  uint32_t shorter = 0;       // the longest token that the text ahead begins with, another than this; 0: none
  uint32_t much_shorter = 0;  // a token some steps further along `shorter`
  uint32_t depth = 0;         // bytes
  int32_t token = -1;         // that is spelled by the whole way here
  uint32_t label = 0;         // the byte that leads here
};

// Where it is noted how long the tokens are that begin as a text does; several beginnings share a place.
constexpr size_t kReachBytes = 3, kReachPlaces = size_t{1} << 16;

constexpr size_t reach_place(std::string_view text) {
  uint32_t beginning = 0;
  for (size_t i = 0; i < kReachBytes; ++i) beginning = beginning << 8 | static_cast<uint8_t>(text[i]);
  return beginning * 0x9e3779b1u >> 16;
}

enum SectionId : size_t {
  kTextEnds,      // uint32: where each token's text ends in kTexts
  kTexts,         // char
  kTraits,        // uint8 each token
  kTextIndex,     // TextSlot
  kByteTokens,    // int32[256]: what a byte becomes if nothing merges; -1: nothing
  kMerges,        // MergeSlot, byte pairs only
  kScores,        // float each token, SentencePiece and unigram only; -infinity: not sought in text
  kBeforeSpace,   // uint32: characters before a space within tokens, ascending, unless it is byte pairs
  kAlwaysFound,   // FinderNode: tokens that are found in any text
  kAllFound,      // FinderNode: and those that are found if asked for
  kWordPattern,   // char: how text is cut into words, by name, pairs only
  kCharMap,       // uint32: nodes of a CharMap, unigram only
  kReplacements,  // char: its replacements
  kUserDefined,   // int32: tokens, by their text, unigram only
  kReaches,       // uint16 each place: bytes of the longest token that is sought, unigram and WordPiece only
  kNumSections,
};

struct Section {
  uint64_t offset = 0;  // a multiple of kAlignment
  uint64_t count = 0;   // of elements
};

constexpr size_t kAlignment = 8;
constexpr std::array<char, 8> kMagic = {'p', 'u', 'n', 'a', 'v', 'o', 'c', '1'};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t size = 0;  // of the whole block
  uint64_t hash_key = 0;
  Algorithm algorithm = Algorithm::kBytePairs;
  Conventions conventions;
  float unknown_score = 0;  // unigram: of a character that is no token
  std::array<Section, kNumSections> sections;
};

// Of a hash table: enough that probes stay short.
constexpr size_t num_slots(size_t num_entries) { return num_entries + num_entries / 2 + 1; }

// Where probing begins.
constexpr size_t first_slot(uint64_t hash, size_t slots) { return ((hash >> 32) * slots) >> 32; }

}  // namespace puna
