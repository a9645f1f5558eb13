// Checks a model's graph against its file and turns it into a Program. Tensors are a stranger's: nothing
// about them is taken for granted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "executor/program/op_call.h"
#include "executor/program/program.h"

namespace puna {

inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr std::string_view kOfDrafter = "draft:";

struct RopeTable {
  int buffer;
  const float* inv_freq;
};

// Every method throws Error, naming the tensor or buffer, if what it is told to do is impossible.
class ProgramBuilder {
 public:
  // kv_type: "f16", "f32", "q8_0" or "q4_0".
  ProgramBuilder(std::shared_ptr<GgufFile> file, const std::string& isa, const std::string& kv_type);
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  // Before any op: texts are in a step as a whole, so that products may be computed in a way of their own.
  void set_encoder() { plan_.is_encoder = true; }
  int buffer(int64_t width);
  void op(const OpCall& call);
  // by_window: layers that see fewer tokens than others form groups of their own. hidden: what the result is
  // made of, if that can be asked for. The builder is spent afterwards.
  std::shared_ptr<Program> build(int result, bool by_window = true, int hidden = kNoBuffer);
  // What comes now belongs to a prediction head, which reads none of the buffers before.
  // drafter: a file that it is in; nullptr: it is in the model's.
  void begin_prediction(std::shared_ptr<GgufFile> drafter = nullptr);
  // Behind it: what the head gives, and what that is made of.
  void end_prediction(int result, int hidden);

  // --- what ops are made of (ops/) ---
  Plan& plan() { return plan_; }
  const Kernels& kernels() const { return *plan_.kernels; }

  int64_t width(int buffer) { return at(buffer).width; }
  void expect_width(int buffer, int64_t width);
  Domain domain(int buffer);
  Domain common_domain(std::span<const int> buffers);
  // A buffer of a layout that only the ops that use it know.
  int scratch(int64_t row_bytes);
  // What `make` makes of a buffer's values; made once, until they change.
  // kind: of such copies, if there are several.
  int copy_of(int buffer, const std::function<int()>& make, int kind = 0);

  // The stage for ops on such rows that comes next.
  int token_stage(Domain domain);
  // Of the model, or of its prediction head where that is being built: each is run by itself.
  int first_stage() const { return plan_.prediction ? static_cast<int>(plan_.prediction->begin) : 0; }
  void append(int token_stage, TokenOp op);
  int add_stage(Stage stage);  // what it reads and writes is to be said next
  void read(int buffer, int stage);
  int last_writer(int buffer) { return at(buffer).last_writer; }
  // inputs: what the values are made of.
  void write(int buffer, Domain domain, int stage, std::span<const int> inputs);

  // name: behind kOfDrafter that of a tensor of the drafter's file.
  Weight weight(const std::string& name) const;
  WeightStack weights(const std::string& name) const;
  Weight matrix(const std::string& name, int64_t cols, int64_t rows) const;
  WeightStack matrices(const std::string& name, int64_t cols, int64_t rows, int64_t count) const;
  // Where adapters may change that matrix: of a linear op, or embeddings.
  int adapter_site(const std::string& tensor, const Weight& weight, bool is_embedding);
  const float* vector(const std::string& name, int64_t size);
  const float* values(const std::string& name, int64_t count);  // of one or two dimensions
  const float* constant(std::span<const float> values);

  std::map<std::tuple<Domain, std::vector<float>, float, int64_t>, RopeTable> rope_tables;
  // The values of the buffer were just turned by their tokens' positions.
  void set_rotation(int buffer, const KeyRotation& rotation);
  // The values of the buffer hang on their tokens' positions in another way.
  void set_positioned(int buffer) { turned_[buffer] = std::nullopt; }
  // v: kNoBuffer where values are columns of the keys. Returns the layer's place in the plan.
  int add_layer(int layer, int num_kv_heads, int head_dim, int64_t window, int k, int v);
  // The place in the plan of a layer that was added.
  int place_of(int layer) const;
  // Returns where in a block of states the layer has so many values more: at a multiple of 64 bytes.
  int64_t add_state(int layer, int64_t num_values);

 private:
  Buffer& at(int buffer);
  void link_linear_stages(size_t begin, size_t end);
  void read_result(int result, int hidden, size_t end);
  void check_prediction();
  void place_layers(bool by_window);
  void expect_random_rows() const;

  Plan plan_;
  std::map<std::pair<int, int>, int> copies_;  // by buffer and kind
  // The buffers whose values depend on their tokens' positions: by one rotation, or otherwise.
  std::map<int, std::optional<KeyRotation>> turned_;
  std::map<int, int> attention_layers_;  // the graph's -> their places in the plan
  size_t num_model_layers_ = 0;          // with attention, where a prediction head begins
  std::set<int> recurrent_layers_;
  int64_t state_bytes_ = 0;
};

// Into how many runs, which are worth a thread's while, a row of so many values can be cut.
int64_t pieces_of_columns(int64_t width);

// Says how token stages are shared out: which are cut by columns, which every thread runs for itself
// (replication.cpp).
void share_out_token_stages(Plan& plan);

// Gives every buffer its place; those that are never needed at the same time share memory (memory.cpp).
void place_buffers(Plan& plan);

}  // namespace puna
