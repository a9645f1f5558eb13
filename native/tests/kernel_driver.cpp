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
//   op NAME INPUTS OUTPUTS TENSORS ATTRIBUTE=VALUE...      as in ProgramBuilder; lists are separated by
//   commas
//                                   and have one behind a single number; "-" is an empty one, "" no tensor
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
#include "executor/move_kv.h"
#include "executor/program/builder.h"
#include "executor/threads/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kv/memory/arena.h"

namespace puna {
namespace {

constexpr int kNumBlocks = 16;

std::shared_ptr<GgufFile> open_file(const std::string& path) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return GgufFile::open(GgufMetadata::read(descriptor.get()), {});
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
    const int64_t block_bytes = program->groups().empty() ? 64 : program->groups()[0].block_bytes;
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
    const BlockTables kv{blocks, 1, kNumBlocks, arena->blocks()};
    const Batch batch{.tokens = tokens,
                      .positions = positions,
                      .sequence_starts = starts,
                      .kv = {&kv, program->groups().size()},
                      .rows = rows};
    const Output output = program->run(pool, batch, 1).value().result;
    results.write(reinterpret_cast<const char*>(output.data.get()),
                  static_cast<std::streamsize>(output.rows * output.width * 4));
  }

  void move(int64_t source_begin, int64_t destination_begin, int64_t num_tokens) {
    std::vector<int32_t> blocks(kNumBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    program->move_kv(pool, {.group = 0,
                            .source = blocks,
                            .destination = blocks,
                            .source_begin = source_begin,
                            .destination_begin = destination_begin,
                            .num_tokens = num_tokens,
                            .blocks = arena->blocks()});
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

std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> found;
  std::istringstream in(list == "-" ? "" : list);
  for (std::string item; std::getline(in, item, ',');) found.push_back(item);
  return found;
}

template <typename T>
std::vector<T> numbers(const std::string& list) {
  std::vector<T> found;
  for (const std::string& item : items(list))
    found.push_back(next<T>(*std::make_unique<std::istringstream>(item)));
  return found;
}

// A list of numbers, a whole number, another one, or else text.
Attribute attribute(const std::string& value) {
  if (value.find(',') != std::string::npos) return numbers<float>(value);
  if (value.find_first_not_of("-0123456789") == std::string::npos) return int64_t{std::stoll(value)};
  char* end;
  const double number = std::strtod(value.c_str(), &end);
  if (*end == '\0') return number;
  return value;
}

void op(Driver& driver, std::istream& in) {
  OpCall call{.name = next<std::string>(in), .inputs = {}, .outputs = {}, .tensors = {}, .attributes = {}};
  call.inputs = numbers<int>(next<std::string>(in));
  call.outputs = numbers<int>(next<std::string>(in));
  for (const std::string& tensor : items(next<std::string>(in)))
    call.tensors.push_back(tensor.empty() ? std::nullopt : std::optional(tensor));
  for (const std::string& word : rest<std::string>(in)) {
    const size_t equals = word.find('=');
    call.attributes.emplace(word.substr(0, equals), attribute(word.substr(equals + 1)));
  }
  driver.builder->op(call);
}

const std::map<std::string, Command> kCommands = {
    {"file", [](Driver& d, std::istream& in) { d.file = open_file(next<std::string>(in)); }},
    {"program",
     [](Driver& d, std::istream& in) {
       call<std::string, std::string>(in, [&](const auto& isa, const auto& kv_type) {
         d.builder = std::make_unique<ProgramBuilder>(d.file, isa, kv_type);
       });
     }},
    {"buffer", [](Driver& d, std::istream& in) { d.builder->buffer(next<int64_t>(in)); }},
    {"op", op},
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
