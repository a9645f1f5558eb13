// Drafts of a sequence's next tokens: what followed its latest ones where the same tokens stood before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "speculation/match_rates.h"

namespace puna {

// Of one sequence, which its owner keeps. Takes 4 bytes for each of its tokens, and 32 to 512 KiB.
//
// The source is an earlier place whose last tokens are those of the sequence's end; match_length says how
// many. As long as the sequence goes on as it did there, the source moves along; otherwise it is looked up
// among the latest places of the last two tokens: the longest match wins, the latest of equals.
//
//     ... a b c d e ........ a b c
//               ^ source            match_length 3, the draft is d e ...
class NgramDrafter {
 public:
  // num_tokens: that the sequence is likely to have; with many more, some earlier places are missed.
  // stop_tokens: end the sequence, and so a draft.
  NgramDrafter(size_t num_tokens, std::vector<int64_t> stop_tokens);

  // Takes in what is new. tokens: the whole sequence, which only ever grows. Of very many new tokens only
  // some are taken in at each call; until all are, there are no drafts.
  void update(std::span<const int32_t> tokens);

  // As MatchRates::chances(); 0 if there is no source. To be called after update().
  size_t chances(std::span<double> chances) const;

  // The next `count` tokens, or fewer if one would be a stop token; none if there is no source. tokens: those
  // of the last update(). Where the source reaches the sequence's end, it goes on in the draft itself: what
  // repeats with a short period is expected to go on repeating.
  std::vector<int32_t> propose(std::span<const int32_t> tokens, size_t count) const;

  // Tokens before the source that equal the sequence's last ones; 0: there is no source.
  size_t match_length() const { return match_length_; }

 private:
  void follow(std::span<const int32_t> tokens, int32_t token);
  void index(std::span<const int32_t> tokens);
  void search(std::span<const int32_t> tokens);

  MatchRates rates_;
  std::vector<int64_t> stop_tokens_;
  size_t match_length_ = 0;
  size_t source_ = 0;
  size_t num_slots_;
  // Latest position of the second token of a pair with this hash; -1: none. Empty before the first update().
  std::vector<int32_t> latest_;
  std::vector<int32_t> previous_;  // by token: where such a pair stood before the one that ends here
};

}  // namespace puna
