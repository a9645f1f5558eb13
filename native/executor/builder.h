// Checks a model's graph against its file and turns it into a Program. Tensors are a stranger's: nothing
// about them is taken for granted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/program.h"

namespace puna {

// Every method throws Error, naming the tensor or buffer, if what it is told to do is impossible.
class ProgramBuilder {
 public:
  // kv_type: "f16" or "f32".
  ProgramBuilder(std::shared_ptr<GgufFile> file, const std::string& isa, const std::string& kv_type);
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  int buffer(int64_t width);
  void embed(int out, const std::string& weight);
  void rms_norm(int out, int x, const std::string& weight, float eps, int64_t group);
  void linear(int x, const std::vector<int>& outs, const std::vector<std::string>& weights,
              const std::vector<std::optional<std::string>>& biases, std::optional<int> residual);
  void rope(int x, int num_heads, int head_dim, const std::string& style, std::span<const float> inv_freq,
            float scale);
  void attention(int out, int q, int k, int v, int layer, int num_heads, int num_kv_heads, int head_dim,
                 float scale, float softcap, int64_t window, const std::optional<std::string>& sinks);
  void glu(int out, int gate, int up, const std::string& activation);
  void add(int out, int a, int b);
  void mul(int out, int a, int b);
  void scale(int out, int x, float factor);
  void softcap(int out, int x, float cap);
  void rows(int out, int x);

  // by_window: layers that see fewer tokens than others form groups of their own. The builder is spent
  // afterwards.
  std::shared_ptr<Program> build(int result, bool by_window = true);

 private:
  struct RopeTable {
    int buffer;
    const float* inv_freq;
  };

  Buffer& at(int buffer);
  Buffer& floats(int buffer, int64_t width);
  int add_buffer(int64_t row_bytes, int64_t width);
  Domain domain(int buffer);
  void read(int buffer, int stage);
  // inputs: what the values are made of.
  void write(int buffer, Domain domain, int stage, std::initializer_list<int> inputs);
  int token_stage(Domain domain);
  void append(int stage, TokenOp op);
  int next_stage() const { return static_cast<int>(plan_.stages.size()); }
  void binary(decltype(Kernels::add) function, int out, int a, int b);
  void unary(decltype(Kernels::scale) function, int out, int x, float parameter);

  Weight matrix(const std::string& name, int64_t cols, int64_t rows) const;
  const float* vector(const std::string& name, int64_t size);
  int quantized(int x);
  RopeTable rope_table(std::span<const float> inv_freq, float scale);
  void link_linear_stages();
  void add_layer(int layer, int num_kv_heads, int head_dim, int64_t window, int k, int v);
  void place_layers(bool by_window);

  Plan plan_;
  std::map<int, int> quantized_;  // float buffer -> its quantized copy, until it is written again
  // Layers with the same frequencies share a table.
  std::map<std::pair<std::vector<float>, float>, RopeTable> rope_tables_;
  // The buffers whose values depend on their tokens' positions: by one rotation, or otherwise.
  std::map<int, std::optional<KeyRotation>> turned_;
  std::map<int, KvLayer> layers_;
};

// Says how token stages are shared out: which are cut by columns, which every thread runs for itself
// (replication.cpp).
void share_out_token_stages(Plan& plan);

// Gives every buffer its place; those that are never needed at the same time share memory (memory.cpp).
void place_buffers(Plan& plan);

}  // namespace puna
