// Each part of the core binds itself in its own file; module.cpp calls them in order.
#pragma once

#include <nanobind/nanobind.h>

namespace puna {

void bind_gguf(nanobind::module_& m);
void bind_arena(nanobind::module_& m);
void bind_conversion(nanobind::module_& m);
void bind_executor(nanobind::module_& m);
void bind_grammars(nanobind::module_& m);
void bind_json(nanobind::module_& m);
void bind_kv(nanobind::module_& m);
void bind_kernels(nanobind::module_& m);
void bind_machine(nanobind::module_& m);
void bind_sampler(nanobind::module_& m);
void bind_speculation(nanobind::module_& m);
void bind_steps(nanobind::module_& m);
void bind_text(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);

}  // namespace puna
