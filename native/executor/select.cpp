#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "executor/cpu.h"
#include "kernels/kernels.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace puna {

#define PUNA_DECLARE_ISA(isa)    \
  namespace isa {                \
  extern const Kernels kKernels; \
  }
#if defined(__x86_64__)
PUNA_DECLARE_ISA(avx2)
PUNA_DECLARE_ISA(avx2_vnni)
PUNA_DECLARE_ISA(avx512)
#elif defined(__aarch64__)
PUNA_DECLARE_ISA(neon)
PUNA_DECLARE_ISA(neon_dotprod)
PUNA_DECLARE_ISA(neon_i8mm)
#endif
PUNA_DECLARE_ISA(portable)
#undef PUNA_DECLARE_ISA

namespace {

// Kernels and the features that they need, beyond what every processor of the architecture has.
struct Isa {
  const Kernels* kernels;
  std::vector<std::string> needs;
};

// Best first.
std::vector<Isa> known_isas() {
  return {
#if defined(__x86_64__)
      {&avx512::kKernels,
       {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx2", "fma", "f16c", "bmi2"}},
      {&avx2_vnni::kKernels, {"avx_vnni", "avx2", "fma", "f16c", "bmi2"}},
      {&avx2::kKernels, {"avx2", "fma", "f16c", "bmi2"}},
#elif defined(__aarch64__)
      {&neon_i8mm::kKernels, {"asimddp", "i8mm"}},
      {&neon_dotprod::kKernels, {"asimddp"}},
      {&neon::kKernels, {"asimd"}},
#endif
      {&portable::kKernels, {}},
  };
}

bool can_run(const Isa& isa, const std::vector<std::string>& features) {
  return std::all_of(isa.needs.begin(), isa.needs.end(), [&](const std::string& need) {
    return std::find(features.begin(), features.end(), need) != features.end();
  });
}

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
  const auto add = [&](const char* name, bool present) {
    if (present) names.emplace_back(name);
  };
#if defined(__x86_64__)
  // Asks the processor, and the operating system whether it saves the wide registers.
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("f16c", __builtin_cpu_supports("f16c"));
  add("bmi2", __builtin_cpu_supports("bmi2"));
  add("avx_vnni", __builtin_cpu_supports("avxvnni"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512dq", __builtin_cpu_supports("avx512dq"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vbmi", __builtin_cpu_supports("avx512vbmi"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512_bf16", __builtin_cpu_supports("avx512bf16"));
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  add("asimd", first & HWCAP_ASIMD);
  add("asimdhp", first & HWCAP_ASIMDHP);
  add("asimddp", first & HWCAP_ASIMDDP);
  add("sve", first & HWCAP_SVE);
  add("sve2", second & HWCAP2_SVE2);
  add("i8mm", second & HWCAP2_I8MM);
  add("bf16", second & HWCAP2_BF16);
#endif
  return names;
}

std::vector<std::string> available_isas() {
  const std::vector<std::string> features = cpu_features();
  std::vector<std::string> names;
  for (const Isa& isa : known_isas())
    if (can_run(isa, features)) names.emplace_back(isa.kernels->isa);
  return names;
}

const Kernels& select_kernels(const char* wanted) {
  const std::string_view name = wanted;
  const std::vector<std::string> features = cpu_features();
  std::string known = "auto";
  for (const Isa& isa : known_isas()) {
    if (name == "auto" ? can_run(isa, features) : name == isa.kernels->isa) {
      if (can_run(isa, features)) return *isa.kernels;
      throw Error("this machine lacks the instruction set " + std::string(name));
    }
    known += std::string(", ") + isa.kernels->isa;
  }
  throw Error("unknown instruction set \"" + std::string(name) + "\" (" + known + ")");
}

}  // namespace puna
