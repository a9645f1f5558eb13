#include <string>
#include <string_view>

#include "base/error.h"
#include "executor/cpu.h"
#include "kernels/kernels.h"

namespace puna {

namespace portable {
extern const Kernels kKernels;
}
#if defined(PUNA_HAVE_AVX512)
namespace avx512 {
extern const Kernels kKernels;
}

// __builtin_cpu_supports asks the processor, and the operating system whether it saves the wide registers.
static bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
#if defined(PUNA_HAVE_AVX512)
  if (has_avx512()) names.emplace_back("avx512");
#endif
  names.emplace_back("portable");
  return names;
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#if defined(__x86_64__)
#define PUNA_FEATURE(name) \
  if (__builtin_cpu_supports(name)) names.emplace_back(name)
  PUNA_FEATURE("avx");
  PUNA_FEATURE("avx2");
  PUNA_FEATURE("fma");
  PUNA_FEATURE("bmi2");
  PUNA_FEATURE("avx512f");
  PUNA_FEATURE("avx512bw");
  PUNA_FEATURE("avx512dq");
  PUNA_FEATURE("avx512vl");
  PUNA_FEATURE("avx512vbmi");
  PUNA_FEATURE("avx512vnni");
#undef PUNA_FEATURE
#endif
  return names;
}

const Kernels& select_kernels(const char* isa) {
  const std::string_view wanted = isa;
#if defined(PUNA_HAVE_AVX512)
  if ((wanted == "auto" || wanted == "avx512") && has_avx512()) return avx512::kKernels;
#endif
  if (wanted == "auto" || wanted == "portable") return portable::kKernels;
  if (wanted == "avx512") throw Error("this machine lacks the instruction set avx512");
  throw Error("unknown instruction set \"" + std::string(wanted) + "\" (auto, avx512, portable)");
}

}  // namespace puna
