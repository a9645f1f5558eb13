// Characters without what BERT's vocabularies leave out: case and accents.
#pragma once

namespace puna {

char32_t lowercase(char32_t character);

// The first character of its canonical decomposition: of a letter with accents, the letter.
char32_t base_character(char32_t character);

}  // namespace puna
