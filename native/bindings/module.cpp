#include "base/error.h"
#include "bindings/bindings.h"
#include "grammars/grammar_error.h"

NB_MODULE(_native, m) {
  m.doc() = "The native core of puna.";
  const auto native_error = nanobind::exception<puna::Error>(m, "NativeError", PyExc_ValueError);
  nanobind::exception<puna::GrammarError>(m, "GrammarError", native_error.ptr());
  puna::bind_gguf(m);
  puna::bind_arena(m);
  puna::bind_conversion(m);
  puna::bind_executor(m);
  puna::bind_json(m);
  puna::bind_kernels(m);
  puna::bind_kv(m);
  puna::bind_machine(m);
  puna::bind_sampler(m);
  puna::bind_speculation(m);
  puna::bind_steps(m);
  puna::bind_text(m);
  puna::bind_tokenizer(m);
  puna::bind_grammars(m);
}
