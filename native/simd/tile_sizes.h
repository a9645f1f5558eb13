// How much of each kernel's tile stays in registers: for each instruction set what measured best.
#pragma once

namespace puna::PUNA_ISA {

#if defined(PUNA_AVX512)  // 32 registers of 16 lanes
// Tokens that linear kernels of quantized weights multiply at a time, with two tiles of 16 rows.
inline constexpr int kTokenGroup = 4;
// Rows and tokens that linear kernels of floats multiply at a time.
inline constexpr int kFloatRows = 4, kFloatTokens = 6;
// Query rows of attention, blocks of 16 scores of each, and chunks of 16 output values of each.
inline constexpr int kRegisterRows = 6, kRegisterBlocks = 4, kRegisterChunks = 4;
// Chunks of 16 columns of a recurrent state, and the sums that each of their sums is split into.
inline constexpr int kScanChunks = 2, kScanSums = 2;
#elif defined(PUNA_AVX2)  // 16 registers of 8 lanes
inline constexpr int kTokenGroup = 4;
inline constexpr int kFloatRows = 2, kFloatTokens = 3;
inline constexpr int kRegisterRows = 3, kRegisterBlocks = 2, kRegisterChunks = 2;
inline constexpr int kScanChunks = 1, kScanSums = 2;
#elif defined(PUNA_NEON)  // 32 registers of 4 lanes
inline constexpr int kTokenGroup = 4;
inline constexpr int kFloatRows = 2, kFloatTokens = 2;
inline constexpr int kRegisterRows = 2, kRegisterBlocks = 2, kRegisterChunks = 2;
inline constexpr int kScanChunks = 1, kScanSums = 1;
#else                     // 16 registers of 4 lanes
inline constexpr int kTokenGroup = 2;
inline constexpr int kFloatRows = 1, kFloatTokens = 2;
inline constexpr int kRegisterRows = 1, kRegisterBlocks = 2, kRegisterChunks = 2;
inline constexpr int kScanChunks = 1, kScanSums = 1;
#endif

// Whether linear kernels of few tokens fetch the next weights while they unpack. The portable ones, which no
// processor of the last ten years needs, are compiled without: all unpacking would be there twice.
#if defined(PUNA_AVX512) || defined(PUNA_AVX2) || defined(PUNA_NEON)
inline constexpr bool kFetchesAhead = true;
#else
inline constexpr bool kFetchesAhead = false;
#endif

}  // namespace puna::PUNA_ISA
