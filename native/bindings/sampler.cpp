#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "bindings/bindings.h"
#include "executor/threads/thread_pool.h"
#include "sampler/sample_batch.h"

namespace nb = nanobind;

namespace puna {
namespace {

using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const int32_t> to_span(const Tokens& tokens) { return {tokens.data(), tokens.size()}; }

void init(Sampler* self, float temperature, int64_t top_k, float top_p, float min_p, float typical_p,
          int64_t repeat_last_n, float repeat_penalty, float presence_penalty, float frequency_penalty,
          nb::int_ seed, const std::map<int64_t, float>& logit_bias, int64_t num_logprobs) {
  SamplingParams params = {temperature,
                           top_k,
                           top_p,
                           min_p,
                           typical_p,
                           repeat_last_n,
                           repeat_penalty,
                           presence_penalty,
                           frequency_penalty,
                           0,
                           {},
                           num_logprobs};
  params.seed = PyLong_AsUnsignedLongLongMask(seed.ptr());  // of any size and sign
  params.logit_bias.assign(logit_bias.begin(), logit_bias.end());
  new (self) Sampler(std::move(params));
}

SampledBatch sample(ThreadPool& pool, const Logits& logits,
                    const std::vector<std::shared_ptr<Sampler>>& samplers,
                    const std::optional<Tokens>& drafts, const std::optional<Tokens>& draft_starts,
                    const std::string& isa, const std::vector<const TokenMask*>& masks) {
  std::vector<Sampler*> pointers;
  for (const auto& sampler : samplers) {
    if (sampler == nullptr) throw Error("a sampler is None");
    pointers.push_back(sampler.get());
  }
  if (drafts.has_value() != draft_starts.has_value()) throw Error("drafts and draft_starts go together");
  Drafts given;
  if (drafts) given = {to_span(*drafts), to_span(*draft_starts)};
  if (draft_starts && given.starts.empty()) throw Error("draft_starts has no entries");
  const Kernels& kernels = select_kernels(isa.c_str());
  const nb::gil_scoped_release release;
  return sample_batch(pool, kernels, logits.data(), static_cast<int64_t>(logits.shape(0)),
                      static_cast<int64_t>(logits.shape(1)), pointers, given, masks);
}

template <typename T>
nb::object to_numpy(std::unique_ptr<T[]> values, size_t size) {
  nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.release(), {size}, owner));
}

template <typename T>
nb::object column(const SampledBatch& result, T Sample::* member) {
  const size_t rows = result.samples.size();
  auto values = std::make_unique<T[]>(rows);
  for (size_t r = 0; r < rows; ++r) values[r] = result.samples[r].*member;
  return to_numpy(std::move(values), rows);
}

nb::object starts(const SampledBatch& result) {
  auto values = std::make_unique<int32_t[]>(result.starts.size());
  std::copy(result.starts.begin(), result.starts.end(), values.get());
  return to_numpy(std::move(values), result.starts.size());
}

nb::dict errors(const SampledBatch& result) {
  nb::dict texts;
  for (size_t i = 0; i < result.errors.size(); ++i)
    if (!result.errors[i].empty()) texts[nb::int_(i)] = result.errors[i];
  return texts;
}

nb::list top_tokens(const SampledBatch& result) {
  nb::list rows;
  for (const Sample& sample : result.samples) {
    nb::list row;
    for (const TokenLogprob& top : sample.top) row.append(nb::make_tuple(top.token, top.logprob));
    rows.append(row);
  }
  return rows;
}

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<Sampler>(m, "Sampler")
      .def("__init__", &init, nb::kw_only(), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
           nb::arg("min_p"), nb::arg("typical_p"), nb::arg("repeat_last_n"), nb::arg("repeat_penalty"),
           nb::arg("presence_penalty"), nb::arg("frequency_penalty"), nb::arg("seed"), nb::arg("logit_bias"),
           nb::arg("num_logprobs"))
      .def("accept", nb::overload_cast<int32_t>(&Sampler::accept), nb::arg("token"))
      .def(
          "accept_many", [](Sampler& self, const Tokens& tokens) { self.accept(to_span(tokens)); },
          nb::arg("tokens").noconvert());
  nb::class_<TokenMask>(m, "TokenMask")
      .def(nb::init<int64_t>(), nb::arg("num_tokens"))
      .def_prop_ro("address", [](TokenMask& mask) { return reinterpret_cast<uintptr_t>(mask.words()); })
      .def_prop_ro("num_bytes", &TokenMask::num_bytes)
      .def_prop_ro("only", &TokenMask::only)
      .def("finish", &TokenMask::finish)
      .def("fail", &TokenMask::fail, nb::arg("error"))
      .def("allows", &TokenMask::allows, nb::arg("token"));
  nb::class_<SampledBatch>(m, "SampleResult")
      .def_prop_ro("tokens", [](const SampledBatch& result) { return column(result, &Sample::token); })
      .def_prop_ro("logprobs", [](const SampledBatch& result) { return column(result, &Sample::logprob); })
      .def_prop_ro("top_tokens", &top_tokens)
      .def_prop_ro("starts", &starts)
      .def_prop_ro("errors", &errors);
  m.def("sample_batch", &sample, nb::arg("pool"), nb::arg("logits").noconvert(), nb::arg("samplers"),
        nb::arg("drafts").noconvert() = nb::none(), nb::arg("draft_starts").noconvert() = nb::none(),
        nb::arg("isa") = "auto", nb::arg("masks") = std::vector<const TokenMask*>());
}

}  // namespace puna
