// Limits on what a file may ask for: far above any real file, and low enough that a hostile one costs little.
#pragma once

#include <cstddef>
#include <cstdint>

namespace puna {

constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 16;
constexpr uint64_t kMaxKeyBytes = (1 << 16) - 1;  // the specification's
constexpr uint64_t kMaxAllKeysBytes = 16 << 20;   // together
constexpr uint64_t kMaxTensorNameBytes = 64;      // the specification's
constexpr uint32_t kMaxDimensions = 4;            // the specification's
constexpr uint64_t kMaxStringBytes = 16 << 20;    // chat templates are the longest
constexpr uint64_t kMaxArrayBytes = 128 << 20;    // in the file
constexpr uint64_t kMaxArrayItems = 1 << 24;      // numbers
constexpr uint64_t kMaxArrayStrings = 1 << 21;    // vocabularies and their merges
constexpr uint64_t kMaxNestedItems = 1 << 16;     // of an array of arrays, inner ones included
constexpr int kMaxArrayDepth = 2;
constexpr uint64_t kMaxMetadataBytes = 512ull << 20;  // header, metadata and tensor index

}  // namespace puna
