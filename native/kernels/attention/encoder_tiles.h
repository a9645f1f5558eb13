// How attention of encoders is cut: work that is shared out, and what kernels take of it at a time.
#pragma once

#include <cstdint>

namespace puna {

// Queries of a task: a multiple of every number that a kernel takes at once, so that these are the same
// however tasks fall. Fewer would bring keys into lanes more often, more would take long in a long text.
inline constexpr int64_t kEncoderTaskQueries = 120;

}  // namespace puna
