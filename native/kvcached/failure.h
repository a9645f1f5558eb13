// What is thrown inside libkvcached and becomes a status at its border.
#pragma once

#include <string>

#include "base/error.h"
#include "kvcached/kvcached.h"

namespace puna::kvcached {

class Failure : public Error {
 public:
  Failure(kvcached_status_t status, const std::string& message) : Error(message), status_(status) {}
  kvcached_status_t status() const { return status_; }

 private:
  kvcached_status_t status_;
};

}  // namespace puna::kvcached
