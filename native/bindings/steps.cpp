#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "steps/gather_rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::object to_numpy(std::vector<int32_t>&& values) {
  auto* owned = new std::vector<int32_t>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

nb::tuple gather(const std::vector<Tokens>& tokens, const std::vector<int64_t>& begins,
                 const std::vector<int64_t>& counts, const std::vector<int32_t>& positions,
                 const std::vector<bool>& completes, const std::vector<std::vector<int32_t>>& drafts) {
  const size_t count = tokens.size();
  if (begins.size() != count || counts.size() != count || positions.size() != count ||
      completes.size() != count || drafts.size() != count)
    throw Error("every part of a step needs all of its fields");
  std::vector<StepPart> parts;
  parts.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto size = static_cast<int64_t>(tokens[i].size());
    if (begins[i] < 0 || counts[i] < 0 || begins[i] > size || counts[i] > size - begins[i])
      throw Error("a part of a step lies outside of its sequence");
    parts.push_back({{tokens[i].data() + begins[i], static_cast<size_t>(counts[i])},
                     positions[i],
                     completes[i],
                     drafts[i]});
  }
  StepRows step = gather_rows(parts);
  const bool has_drafts = !step.draft_starts.empty();
  return nb::make_tuple(to_numpy(std::move(step.tokens)), to_numpy(std::move(step.positions)),
                        to_numpy(std::move(step.sequence_starts)), to_numpy(std::move(step.rows)),
                        has_drafts ? to_numpy(std::move(step.drafts)) : nb::none(),
                        has_drafts ? to_numpy(std::move(step.draft_starts)) : nb::none());
}

}  // namespace

void bind_steps(nb::module_& m) {
  m.def("gather_rows", &gather, "tokens"_a.noconvert(), "begins"_a, "counts"_a, "positions"_a, "completes"_a,
        "drafts"_a);
}

}  // namespace puna
