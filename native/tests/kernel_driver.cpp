// Runs programs that a script describes, to test kernels of processors that this machine can only emulate.
//
//   kernel_driver SCRIPT RESULTS
//
// Each line of SCRIPT is a command; buffers are numbered in the order in which they are made, and are made
// before the ops, which add hidden ones. RESULTS gets the float32 rows of every run, one after the other.
//
//   file PATH                       the GGUF file that the following programs use
//   program ISA KV_TYPE             starts a program; prints the instruction set
//   buffer WIDTH
//   embed OUT WEIGHT, rms_norm OUT X WEIGHT EPS GROUP, linear X OUT WEIGHT BIAS RESIDUAL ("-": none),
//   rope X HEADS HEAD_DIM STYLE SCALE FREQUENCIES..., glu OUT GATE UP ACTIVATION, add OUT A B, mul OUT A B,
//   scale OUT X FACTOR, softcap OUT X CAP, attention OUT Q K V HEADS KV_HEADS HEAD_DIM SCALE SOFTCAP WINDOW,
//   rows OUT X                      as in ProgramBuilder
//   build RESULT
//   run POSITION TOKENS...          a step of one sequence, whose blocks are 0, 1, ...
//   move SOURCE_BEGIN DESTINATION_BEGIN NUM_TOKENS      within this sequence
#include <fcntl.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "executor/builder.h"
#include "executor/move_kv.h"
#include "executor/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kv/arena.h"

namespace puna {
namespace {

constexpr int kNumBlocks = 16;

std::shared_ptr<GgufFile> open_file(const std::string& path) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return GgufFile::open(descriptor.get());
}

struct Driver {
  std::ofstream results;
  ThreadPool pool{1};
  std::shared_ptr<GgufFile> file;
  std::unique_ptr<ProgramBuilder> builder;
  std::shared_ptr<Program> program;
  std::unique_ptr<Arena> arena;

  void build(int result) {
    program = builder->build(result);
    const int64_t block_bytes = program->block_bytes() > 0 ? program->block_bytes() : 64;
    arena = std::make_unique<Arena>(kNumBlocks, block_bytes);
    std::memset(arena->blocks()[0], 0xff,
                static_cast<size_t>(kNumBlocks * block_bytes));  // NaN until written
    std::cout << program->isa() << "\n";
  }

  void run(int32_t position, const std::vector<int32_t>& tokens) {
    std::vector<int32_t> positions(tokens.size()), rows(tokens.size()), blocks(kNumBlocks);
    std::iota(positions.begin(), positions.end(), position);
    std::iota(rows.begin(), rows.end(), 0);
    std::iota(blocks.begin(), blocks.end(), 0);
    const std::vector<int32_t> starts = {0, static_cast<int32_t>(tokens.size())};
    const Batch batch{.tokens = tokens,
                      .positions = positions,
                      .sequence_starts = starts,
                      .block_tables = blocks,
                      .num_tables = 1,
                      .table_width = kNumBlocks,
                      .rows = rows,
                      .blocks = arena->blocks()};
    const Output output = program->run(pool, batch, 1);
    results.write(reinterpret_cast<const char*>(output.data.get()),
                  static_cast<std::streamsize>(output.rows * output.width * 4));
  }

  void move(int64_t source_begin, int64_t destination_begin, int64_t num_tokens) {
    std::vector<int32_t> blocks(kNumBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    program->move_kv(pool, {.source = blocks,
                            .destination = blocks,
                            .source_begin = source_begin,
                            .destination_begin = destination_begin,
                            .num_tokens = num_tokens,
                            .blocks = arena->blocks()});
  }

  void linear(std::istream& in) {
    int x, out;
    std::string weight, bias, residual;
    in >> x >> out >> weight >> bias >> residual;
    builder->linear(x, {out}, {weight}, {bias == "-" ? std::nullopt : std::optional(bias)},
                    residual == "-" ? std::nullopt : std::optional(std::stoi(residual)));
  }
};

template <typename T>
T next(std::istream& in) {
  T value;
  if (!(in >> value)) throw Error("too few arguments");
  return value;
}
template <typename T>
std::vector<T> rest(std::istream& in) {
  std::vector<T> values;
  for (T value; in >> value;) values.push_back(value);
  return values;
}

// f(arguments...), read from left to right.
template <typename... Arguments, typename Function>
void call(std::istream& in, Function f) {
  std::tuple<Arguments...> arguments{next<Arguments>(in)...};
  std::apply(f, arguments);
}

typedef std::function<void(Driver&, std::istream&)> Command;

// A method of ProgramBuilder whose arguments are these.
template <typename... Arguments, typename Method>
Command op(Method method) {
  return [method](Driver& d, std::istream& in) {
    call<Arguments...>(in, [&](const auto&... a) { (d.builder.get()->*method)(a...); });
  };
}

const std::map<std::string, Command> kCommands = {
    {"file", [](Driver& d, std::istream& in) { d.file = open_file(next<std::string>(in)); }},
    {"program",
     [](Driver& d, std::istream& in) {
       call<std::string, std::string>(in, [&](const auto& isa, const auto& kv_type) {
         d.builder = std::make_unique<ProgramBuilder>(d.file, isa, kv_type);
       });
     }},
    {"buffer", op<int64_t>(&ProgramBuilder::buffer)},
    {"embed", op<int, std::string>(&ProgramBuilder::embed)},
    {"rms_norm", op<int, int, std::string, float, int64_t>(&ProgramBuilder::rms_norm)},
    {"linear", &Driver::linear},
    {"rope",
     [](Driver& d, std::istream& in) {
       call<int, int, int, std::string, float>(in, [&](int x, int heads, int dim, auto& style, float scale) {
         d.builder->rope(x, heads, dim, style, rest<float>(in), scale);
       });
     }},
    {"attention",
     [](Driver& d, std::istream& in) {
       call<int, int, int, int, int, int, int, float, float, int64_t>(
           in, [&](int out, int q, int k, int v, auto... a) { d.builder->attention(out, q, k, v, 0, a...); });
     }},
    {"glu", op<int, int, int, std::string>(&ProgramBuilder::glu)},
    {"add", op<int, int, int>(&ProgramBuilder::add)},
    {"mul", op<int, int, int>(&ProgramBuilder::mul)},
    {"scale", op<int, int, float>(&ProgramBuilder::scale)},
    {"softcap", op<int, int, float>(&ProgramBuilder::softcap)},
    {"rows", op<int, int>(&ProgramBuilder::rows)},
    {"build", [](Driver& d, std::istream& in) { d.build(next<int>(in)); }},
    {"run",
     [](Driver& d, std::istream& in) {
       const int32_t position = next<int32_t>(in);
       d.run(position, rest<int32_t>(in));
     }},
    {"move", [](Driver& d,
                std::istream& in) { call<int64_t, int64_t, int64_t>(in, [&](auto... a) { d.move(a...); }); }},
};

}  // namespace
}  // namespace puna

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: kernel_driver SCRIPT RESULTS\n"), 2;
  std::ifstream script(argv[1]);
  puna::Driver driver;
  driver.results.open(argv[2], std::ios::binary);
  for (std::string line; std::getline(script, line);) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    try {
      puna::kCommands.at(name)(driver, in);
    } catch (const std::exception& error) {
      return std::fprintf(stderr, "%s: %s\n", line.c_str(), error.what()), 1;
    }
  }
  driver.results.close();
  return script.eof() && driver.results ? 0 : 1;
}
