#include "text/advance.h"

namespace puna {

Advance advance(TextStream& stream, std::span<const int32_t> drawn, int64_t num_left) {
  Advance reply;
  reply.num_drawn = reply.num_kept = drawn.size();
  if (!drawn.empty() && stream.is_stop_token(drawn.back())) {
    reply.end = ReplyEnd::kStop;
    --reply.num_kept;
  } else if (static_cast<int64_t>(drawn.size()) >= num_left) {
    reply.end = ReplyEnd::kLength;
  }
  reply.piece = stream.add(drawn.first(reply.num_kept), reply.end != ReplyEnd::kNone);
  if (reply.piece.ends) {
    reply.num_drawn = reply.num_kept = reply.piece.num_taken;
    reply.end = ReplyEnd::kStop;
  }
  return reply;
}

}  // namespace puna
