// How much of each kernel's tile stays in registers, per instruction set.
#pragma once

namespace puna::PUNA_ISA {

#if defined(PUNA_AVX512)                   // 32 registers of 16 lanes
inline constexpr int kTokenGroup = 4;      // tokens that linear kernels multiply at a time
inline constexpr int kRegisterRows = 6;    // query rows of attention
inline constexpr int kRegisterChunks = 4;  // of 16 values of each row
#elif defined(PUNA_AVX2)                   // 16 of 8
inline constexpr int kTokenGroup = 4;
inline constexpr int kRegisterRows = 2;
inline constexpr int kRegisterChunks = 2;
#elif defined(PUNA_NEON)                   // 32 of 4
inline constexpr int kTokenGroup = 4;
inline constexpr int kRegisterRows = 2;
inline constexpr int kRegisterChunks = 2;
#else                                      // 16 of 4
inline constexpr int kTokenGroup = 2;
inline constexpr int kRegisterRows = 1;
inline constexpr int kRegisterChunks = 2;
#endif

}  // namespace puna::PUNA_ISA
