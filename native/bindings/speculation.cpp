#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "scheduling/step_costs.h"
#include "speculation/draft_plan.h"
#include "speculation/ngram_drafter.h"
#include "speculation/text_drafts.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace puna {
namespace {

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<size_t> plan(const std::vector<std::vector<double>>& chances, int64_t num_tokens,
                         int64_t num_decodes, const StepCosts& costs, double round_s) {
  Chances flat;
  for (const std::vector<double>& of_sequence : chances) {
    flat.values.insert(flat.values.end(), of_sequence.begin(), of_sequence.end());
    flat.starts.push_back(flat.values.size());
  }
  return plan_drafts(flat, {num_tokens, num_decodes}, costs, round_s);
}

nb::list draft(const std::vector<NgramDrafter*>& drafters, const std::vector<Tokens>& tokens,
               const std::vector<size_t>& counts, const std::vector<int64_t>& limits,
               const std::vector<double>& least_chances, int64_t num_tokens, int64_t num_decodes,
               const StepCosts& costs) {
  const size_t count = drafters.size();
  if (tokens.size() != count || counts.size() != count || limits.size() != count ||
      least_chances.size() != count)
    throw Error("every drafter needs its tokens, their number, its limit and its least chance");
  std::vector<TextDraft> sequences;
  sequences.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (drafters[i] == nullptr) throw Error("a drafter is None");
    if (counts[i] > tokens[i].size()) throw Error("a sequence has fewer tokens than it is said to have");
    const auto limit = static_cast<size_t>(limits[i] < 0 ? 0 : limits[i]);
    sequences.push_back({drafters[i], {tokens[i].data(), counts[i]}, limit, least_chances[i]});
  }
  nb::list drafts;
  for (const std::vector<int32_t>& of_sequence : draft_from_text(sequences, {num_tokens, num_decodes}, costs))
    drafts.append(nb::cast(of_sequence));
  return drafts;
}

}  // namespace

void bind_speculation(nb::module_& m) {
  nb::class_<StepCosts>(m, "StepCosts")
      .def(nb::init<>())
      .def("observe", &StepCosts::observe, "num_tokens"_a, "seconds"_a)
      .def_prop_ro("fewest_tokens", &StepCosts::fewest_tokens)
      .def("has_seen", &StepCosts::has_seen, "num_tokens"_a)
      .def("estimate", &StepCosts::estimate, "num_tokens"_a);
  nb::class_<NgramDrafter>(m, "NgramDrafter")
      .def(nb::init<size_t, std::vector<int64_t>>(), "num_tokens"_a = 0,
           "stop_tokens"_a = std::vector<int64_t>())
      .def_prop_ro("match_length", &NgramDrafter::match_length);
  m.def("plan_drafts", &plan, "chances"_a, "num_tokens"_a, "num_decodes"_a, "costs"_a, "round_s"_a = 0.0);
  m.def("draft_from_text", &draft, "drafters"_a, "tokens"_a.noconvert(), "counts"_a, "limits"_a,
        "least_chances"_a, "num_tokens"_a, "num_decodes"_a, "costs"_a);
}

}  // namespace puna
