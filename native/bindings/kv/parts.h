// What bind_kv() is made of.
#pragma once

#include <nanobind/nanobind.h>

namespace puna {

void bind_pool(nanobind::module_& m);
void bind_blocks(nanobind::module_& m);
void bind_tables(nanobind::module_& m);
void bind_nodes(nanobind::module_& m);
void bind_tree(nanobind::module_& m);

}  // namespace puna
