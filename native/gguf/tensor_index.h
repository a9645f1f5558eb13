// The tensors that a GGUF file says it has: names, shapes, and where their data lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/reader.h"
#include "quants/types.h"

namespace puna {

// Where data of a tensor lie.
struct TensorPlace {
  uint32_t file;    // 0: the index's own; else one that comes with it
  uint64_t offset;  // from the start of that file; a multiple of at least 8 in the index's own
};

struct TensorEntry {
  std::string name;                 // valid UTF-8
  TensorType type;                  // perhaps one without traits
  std::vector<int64_t> shape;       // fastest first; all >= 1
  std::vector<TensorPlace> places;  // one, or as many as the tensor has matrices, which lie apart then
  uint64_t num_bytes;               // of all of it; 0 if the type is unknown
  bool adds_one = false;            // its values (F32, in one place) are read with 1 added

  uint64_t place_bytes() const { return num_bytes / places.size(); }
};

class TensorIndex {
 public:
  TensorIndex() = default;
  // Reads `count` entries, the last thing before the data. places: of all of them (file 0: where the entry
  // says), or empty: all are in this file. Error unless every tensor has a name of its own, a shape, and data
  // that lies within the file and in no other's; whether data in other files lies within them is not looked
  // at.
  TensorIndex(Reader& reader, uint64_t count, uint64_t alignment, uint64_t file_size,
              std::span<const std::vector<TensorPlace>> places);

  // Leaves the tensors that have a new name here, by their names; the others cannot be found any more. Error
  // if two of them get the same name.
  void rename(const std::map<std::string, std::string, std::less<>>& new_names);

  // Makes a tensor of three dimensions of matrices that are of one type and shape. They stay, too. Error if
  // they are not, or the name is taken.
  void join(const std::string& name, std::span<const std::string> matrices);

  // From now on its values are read with 1 added. Error unless it is F32 and lies in one place.
  void add_one(std::string_view name);

  const std::vector<TensorEntry>& entries() const { return entries_; }
  // nullptr if there is none of that name.
  const TensorEntry* find(std::string_view name) const;

 private:
  void place(uint64_t data_begin, uint64_t alignment, uint64_t file_size);
  void place_elsewhere(std::span<const std::vector<TensorPlace>> places);
  void check_overlaps() const;

  std::vector<TensorEntry> entries_;
  // Ordered, not hashed: the names are a stranger's, and could be chosen to collide.
  std::map<std::string, size_t, std::less<>> index_;
};

// Values of a row; of all rows together.
int64_t row_values(const TensorEntry& tensor);
int64_t num_values(const TensorEntry& tensor);

// "Q4_K", or "type 99" for a type without traits.
std::string type_name(TensorType type);

}  // namespace puna
