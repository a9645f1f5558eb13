// By what a reply gets on in a step.
#pragma once

#include <cstdint>
#include <span>

#include "text/text_stream.h"

namespace puna {

enum class ReplyEnd { kNone, kStop, kLength };

struct Advance {
  size_t num_drawn = 0;  // up to the token that ends the reply, a stop token included
  size_t num_kept = 0;   // of those: not a stop token
  ReplyEnd end = ReplyEnd::kNone;
  TextPiece piece;
};

// Takes what was drawn, up to what ends the reply. num_left: tokens that it may still have.
Advance advance(TextStream& stream, std::span<const int32_t> drawn, int64_t num_left);

}  // namespace puna
