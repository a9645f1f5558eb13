#pragma once

#include "base/error.h"

namespace puna {

// A grammar that cannot be compiled, or a reply that cannot go on with it.
class GrammarError : public Error {
 public:
  using Error::Error;
};

}  // namespace puna
