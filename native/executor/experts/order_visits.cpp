#include <array>
#include <utility>

#include "executor/experts/expert_paging.h"
#include "executor/experts/expert_step.h"
#include "executor/experts/routing.h"

namespace puna {

void ExpertStep::order_visits() const {
  std::array<int32_t, kMaxExperts> next{};  // visits of each expert, then where its next one goes
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i < layer.num_used; ++i) ++next[static_cast<size_t>(experts(row)[i])];
  }
  ExpertRun* const list = run_list();
  int32_t count = 0, visits = 0;
  for (int32_t expert = 0; expert < layer.num_experts; ++expert) {
    int32_t& at = next[static_cast<size_t>(expert)];
    if (at == 0) continue;
    list[++count] = {expert, visits};
    visits += std::exchange(at, visits);
  }
  list[0] = {count, 0};
  list[count + 1] = {-1, visits};
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i < layer.num_used; ++i) {
      const int32_t visit = next[static_cast<size_t>(experts(row)[i])]++;
      visit_of_choice(row)[i] = visit;
      row_of_visit()[visit] = static_cast<int32_t>(row);
    }
  }
  read_first_experts_ahead(*this);
}

}  // namespace puna
