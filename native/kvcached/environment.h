// What the environment asks for.
#pragma once

#include <cstdint>
#include <optional>

namespace puna::kvcached {

// OLLAMA_KVCACHED_MEMORY_GB in bytes: GiB, or with a unit, such as "512MiB". None if it is not set or empty.
// Throws Failure if it is no size, or less than any model can use.
std::optional<int64_t> limit_from_environment();

}  // namespace puna::kvcached
