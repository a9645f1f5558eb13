#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/sealed_mapping.h"
#include "vocabulary/vocabulary.h"

namespace puna {

// A vocabulary with what keeps its bytes.
struct HeldVocabulary {
  std::unique_ptr<SealedMapping> mapping;
  nanobind::bytes blob;
  Vocabulary vocabulary;

  explicit HeldVocabulary(nanobind::bytes held)
      : blob(std::move(held)), vocabulary({reinterpret_cast<const uint8_t*>(blob.c_str()), blob.size()}) {}
  explicit HeldVocabulary(int fd)
      : mapping(std::make_unique<SealedMapping>(fd)), vocabulary(mapping->bytes()) {}
};

}  // namespace puna
