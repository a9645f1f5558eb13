#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <thread>

#include "base/error.h"
#include "bindings/bindings.h"
#include "executor/cpu.h"
#include "executor/move_kv.h"
#include "executor/prediction.h"
#include "executor/program/builder.h"
#include "executor/program/program.h"
#include "executor/step_control.h"
#include "executor/threads/thread_activity.h"
#include "executor/threads/thread_pool.h"
#include "kv/memory/arena.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace puna {
namespace {

using Int32Vector = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Int32Matrix = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using HiddenStates = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

template <typename Array>
auto to_span(const Array& array) {
  return std::span(array.data(), array.size());
}

OutMatrix to_numpy(Output output) {
  auto* data = output.data.get();
  auto holder = std::make_unique<std::shared_ptr<float[]>>(std::move(output.data));
  nb::capsule owner(holder.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<float[]>*>(p); });
  (void)holder.release();
  return OutMatrix(data, {static_cast<size_t>(output.rows), static_cast<size_t>(output.width)}, owner);
}

// The arenas stay mapped if another thread closes them.
struct Kv {
  std::vector<BlockTables> tables;
  std::vector<std::shared_ptr<uint8_t>> mappings;
};

Kv kv_of(const std::vector<Arena*>& arenas, const std::vector<Int32Matrix>& block_tables) {
  if (arenas.size() != block_tables.size()) throw Error("there are not as many block tables as arenas");
  Kv kv;
  for (size_t g = 0; g < arenas.size(); ++g) {
    if (arenas[g] == nullptr) throw Error("an arena is missing");
    const Int32Matrix& tables = block_tables[g];
    kv.mappings.push_back(arenas[g]->mapping());
    kv.tables.push_back({to_span(tables), static_cast<int64_t>(tables.shape(0)),
                         static_cast<int64_t>(tables.shape(1)), arenas[g]->blocks()});
  }
  return kv;
}

// adapters: of each sequence, or none.
std::vector<const Adapter*> adapters_of_tokens(const std::vector<std::shared_ptr<Adapter>>& adapters,
                                               std::span<const int32_t> starts) {
  std::vector<const Adapter*> of_tokens;
  if (adapters.empty()) return of_tokens;
  if (adapters.size() + 1 != starts.size()) throw Error("there are not as many adapters as sequences");
  for (size_t s = 0; s < adapters.size(); ++s)
    for (int32_t t = starts[s]; t < starts[s + 1]; ++t) of_tokens.push_back(adapters[s].get());
  return of_tokens;
}

// The arrays of a step, as Python has them, and what of it is not there as such.
struct StepArrays {
  StepArrays(const Program& program, const std::vector<Arena*>& arenas, const Int32Vector& tokens,
             const Int32Vector& positions, const Int32Vector& sequence_starts,
             const std::vector<Int32Matrix>& block_tables, const Int32Vector& rows,
             const std::optional<Int32Vector>& draft_starts, const std::optional<Int32Vector>& hidden,
             const std::vector<HeadState*>& heads)
      : kv(kv_of(arenas, block_tables)),
        batch{.tokens = to_span(tokens),
              .positions = to_span(positions),
              .sequence_starts = to_span(sequence_starts),
              .kv = kv.tables,
              .rows = to_span(rows),
              .hidden = hidden ? to_span(*hidden) : std::span<const int32_t>(),
              .draft_starts = draft_starts ? to_span(*draft_starts) : std::span<const int32_t>()} {
    if (heads.empty()) return;
    all_hidden.assign(batch.hidden.begin(), batch.hidden.end());
    const std::vector<int32_t> more = program.tokens_for_head(batch, heads);
    all_hidden.insert(all_hidden.end(), more.begin(), more.end());
    batch.hidden = all_hidden;
  }
  StepArrays(const StepArrays&) = delete;
  StepArrays& operator=(const StepArrays&) = delete;

  Kv kv;
  std::vector<int32_t> all_hidden;  // those that heads need are the last
  Batch batch;
};

// None: the step was suspended.
nb::object run_program(Program& program, ThreadPool& pool, const std::vector<Arena*>& arenas,
                       const Int32Vector& tokens, const Int32Vector& positions,
                       const Int32Vector& sequence_starts, const std::vector<Int32Matrix>& block_tables,
                       const Int32Vector& rows, std::optional<int> num_threads, StepControl* control,
                       const std::optional<Int32Vector>& draft_starts,
                       const std::optional<Int32Vector>& hidden,
                       const std::vector<std::shared_ptr<Adapter>>& adapters,
                       const std::vector<HeadState*>& heads, bool goes_on) {
  StepArrays step(program, arenas, tokens, positions, sequence_starts, block_tables, rows, draft_starts,
                  hidden, heads);
  const std::vector<const Adapter*> of_tokens = adapters_of_tokens(adapters, to_span(sequence_starts));
  step.batch.adapters = of_tokens;
  std::optional<Outputs> outputs;
  {
    const nb::gil_scoped_release released;
    outputs = program.run(pool, step.batch, num_threads.value_or(pool.num_threads()), control, goes_on);
  }
  if (!outputs) return nb::none();
  return nb::make_tuple(to_numpy(std::move(outputs->result)), to_numpy(std::move(outputs->hidden)));
}

void keep(Program& program, ThreadPool& pool, const std::vector<Arena*>& arenas, const Int32Vector& tokens,
          const Int32Vector& positions, const Int32Vector& sequence_starts,
          const std::vector<Int32Matrix>& block_tables, const Int32Vector& rows,
          std::optional<int> num_threads, const std::optional<Int32Vector>& draft_starts,
          const std::optional<Int32Vector>& hidden, const std::vector<HeadState*>& heads,
          const HiddenStates& states, const Int32Vector& sample_starts) {
  const StepArrays step(program, arenas, tokens, positions, sequence_starts, block_tables, rows, draft_starts,
                        hidden, heads);
  const nb::gil_scoped_release released;
  program.keep(pool, step.batch, num_threads.value_or(pool.num_threads()), heads, to_span(states),
               to_span(sample_starts));
}

nb::list predict(Program& program, ThreadPool& pool, const std::vector<Arena*>& arenas,
                 const Int32Vector& tokens, const Int32Vector& positions, const Int32Vector& sequence_starts,
                 const std::vector<Int32Matrix>& block_tables, std::optional<int> num_threads,
                 const std::vector<HeadState*>& heads, const std::vector<int64_t>& counts) {
  const Kv kv = kv_of(arenas, block_tables);
  const Batch batch{.tokens = to_span(tokens),
                    .positions = to_span(positions),
                    .sequence_starts = to_span(sequence_starts),
                    .kv = kv.tables,
                    .rows = {}};
  std::vector<std::vector<int32_t>> drafts;
  {
    const nb::gil_scoped_release released;
    drafts = program.predict(pool, batch, num_threads.value_or(pool.num_threads()), {heads, counts});
  }
  nb::list all;
  for (const std::vector<int32_t>& of_sequence : drafts) all.append(nb::cast(of_sequence));
  return all;
}

void replay(Program& program, ThreadPool& pool, Arena& arena, const Int32Vector& sample_starts) {
  const std::shared_ptr<uint8_t> mapping = arena.mapping();  // as for a run
  const BlockSpace blocks = arena.blocks();
  const nb::gil_scoped_release released;
  program.replay(pool, blocks, to_span(sample_starts));
}

void move_kv(const Program& program, ThreadPool& pool, size_t group, Arena& arena, const Int32Vector& source,
             const Int32Vector& destination, int64_t source_begin, int64_t destination_begin,
             int64_t num_tokens) {
  const std::shared_ptr<uint8_t> mapping = arena.mapping();  // as for a run
  const KvMove move{
      .group = group,
      .source = to_span(source),
      .destination = to_span(destination),
      .source_begin = source_begin,
      .destination_begin = destination_begin,
      .num_tokens = num_tokens,
      .blocks = arena.blocks(),
  };
  const nb::gil_scoped_release released;
  program.move_kv(pool, move);
}

Attribute attribute_of(nb::handle value) {
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  const auto array = nb::cast<FloatVector>(value, false);
  return std::vector<float>(array.data(), array.data() + array.size());
}

void add_op(ProgramBuilder& builder, std::string name, std::vector<int> inputs, std::vector<int> outputs,
            std::vector<std::optional<std::string>> tensors, const nb::kwargs& attributes) {
  OpCall call{std::move(name), std::move(inputs), std::move(outputs), std::move(tensors), {}};
  for (const auto [key, value] : attributes)
    call.attributes.emplace(nb::cast<std::string>(key), attribute_of(value));
  builder.op(call);
}

void bind_builder(nb::module_& m) {
  nb::class_<ProgramBuilder>(m, "ProgramBuilder")
      .def(nb::init<std::shared_ptr<GgufFile>, const std::string&, const std::string&>(), "file"_a,
           "isa"_a = "auto", "kv_type"_a = "f16")
      .def("set_encoder", &ProgramBuilder::set_encoder)
      .def("buffer", &ProgramBuilder::buffer, "width"_a)
      .def("op", &add_op, "name"_a, "inputs"_a, "outputs"_a, "tensors"_a = nb::tuple(), "attributes"_a)
      .def("build", &ProgramBuilder::build, "result"_a, "by_window"_a = true, "hidden"_a = kNoBuffer)
      .def("begin_prediction", &ProgramBuilder::begin_prediction, "drafter"_a.none() = nb::none())
      .def("end_prediction", &ProgramBuilder::end_prediction, "result"_a, "hidden"_a);
}

void bind_program(nb::module_& m) {
  nb::class_<KvGroup>(m, "KvGroup")
      .def_ro("num_layers", &KvGroup::num_layers)
      .def_ro("block_bytes", &KvGroup::block_bytes)
      .def_ro("window", &KvGroup::window)
      .def_ro("is_state", &KvGroup::is_state);
  nb::class_<Adapter>(m, "Adapter")
      .def_prop_ro("num_bytes", &Adapter::num_bytes)
      .def("check_whole", &Adapter::check_whole);
  nb::class_<HeadState>(m, "HeadState").def(nb::init<>()).def("forget", &HeadState::forget);
  nb::class_<Program>(m, "Program")
      .def_prop_ro("isa", &Program::isa)
      .def_prop_ro("groups", &Program::groups)
      .def_prop_ro("buffer_bytes", &Program::buffer_bytes)
      .def("most_scratch_bytes", &Program::most_scratch_bytes, "context_length"_a, "num_threads"_a)
      .def("text_bytes", &Program::text_bytes, "num_tokens"_a, "num_texts"_a, "num_threads"_a)
      .def("release_memory", &Program::release_memory, nb::call_guard<nb::gil_scoped_release>())
      // Converting int64 would wrap around silently.
      .def("run", &run_program, "pool"_a, "arenas"_a, "tokens"_a.noconvert(), "positions"_a.noconvert(),
           "sequence_starts"_a.noconvert(), "block_tables"_a.noconvert(), "rows"_a.noconvert(),
           "num_threads"_a = nb::none(), "control"_a.none() = nb::none(),
           "draft_starts"_a.noconvert() = nb::none(), "hidden"_a.noconvert() = nb::none(),
           "adapters"_a = nb::tuple(), "heads"_a = nb::tuple(), "goes_on"_a = false)
      .def("keep", &keep, "pool"_a, "arenas"_a, "tokens"_a.noconvert(), "positions"_a.noconvert(),
           "sequence_starts"_a.noconvert(), "block_tables"_a.noconvert(), "rows"_a.noconvert(),
           "num_threads"_a.none(), "draft_starts"_a.noconvert().none(), "hidden"_a.noconvert().none(),
           "heads"_a, "states"_a.noconvert(), "sample_starts"_a.noconvert())
      .def("predict", &predict, "pool"_a, "arenas"_a, "tokens"_a.noconvert(), "positions"_a.noconvert(),
           "sequence_starts"_a.noconvert(), "block_tables"_a.noconvert(), "num_threads"_a.none(), "heads"_a,
           "counts"_a)
      .def("load_adapter", &Program::load_adapter, "file"_a, "alpha"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("replay", &replay, "pool"_a, "states"_a, "sample_starts"_a.noconvert())
      .def_prop_ro("can_shift", &Program::can_shift)
      .def("move_kv", &move_kv, "pool"_a, "group"_a, "arena"_a, "source"_a.noconvert(),
           "destination"_a.noconvert(), "source_begin"_a, "destination_begin"_a, "num_tokens"_a);
}

struct CpuInfo {
  std::string isa;
  std::vector<std::string> isas;
  std::vector<std::string> features;
  int logical_cpus;
};

CpuInfo cpu_info() {
  return {select_kernels("auto").isa, available_isas(), cpu_features(),
          static_cast<int>(std::thread::hardware_concurrency())};
}

// What ThreadActivity says at one moment.
struct PoolActivity {
  uint64_t num_tasks;
  int num_asleep;
  std::vector<double> cpu_seconds;
};

PoolActivity activity_of(const ThreadPool& pool) {
  const ThreadActivity& activity = pool.activity();
  return {activity.num_tasks(), activity.num_asleep(), activity.cpu_seconds()};
}

}  // namespace

void bind_executor(nb::module_& m) {
  nb::class_<PoolActivity>(m, "PoolActivity")
      .def_ro("num_tasks", &PoolActivity::num_tasks)
      .def_ro("num_asleep", &PoolActivity::num_asleep)
      .def_ro("cpu_seconds", &PoolActivity::cpu_seconds);
  nb::class_<ThreadPool>(m, "ThreadPool")
      .def(nb::init<int>(), "num_threads"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def("activity", &activity_of)
      .def("close", &ThreadPool::close, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<StepControl>(m, "StepControl")
      .def(nb::init<>())
      .def("begin", &StepControl::begin)
      .def("suspend_in", &StepControl::suspend_in, "seconds"_a)
      .def("stop", &StepControl::stop)
      .def_prop_ro("is_stopped", &StepControl::is_stopped);
  bind_builder(m);
  bind_program(m);
  nb::class_<CpuInfo>(m, "CpuInfo")
      .def_ro("isa", &CpuInfo::isa)
      .def_ro("isas", &CpuInfo::isas)
      .def_ro("features", &CpuInfo::features)
      .def_ro("logical_cpus", &CpuInfo::logical_cpus);
  m.def("cpu_info", &cpu_info);
}

}  // namespace puna
