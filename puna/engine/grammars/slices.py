"""Sets of tokens that are allowed or not as a whole: so masks of free text need no look at each token.

Where a terminal of a grammar accepts all that a slice's regular expression does, llguidance allows the
slice's tokens at once. It can tell that of `[...]*`, and of `[...][...]*` if that is written as the slice is.
https://github.com/guidance-ai/llguidance/blob/main/docs/optimizations.md
"""

from __future__ import annotations

BEHIND_BRACKET = "/fmst|"
"""What tags go on with behind "<", as far as families have them in text."""
BEHIND_NEXT = ">afimpst"
"""And behind the characters after that, of which the first is mostly "/"."""

SLICES = (
    r"[^<]+",
    f"[^<{BEHIND_BRACKET}][^<]*",
    f"[^<{BEHIND_NEXT}][^<]*",
    r'[^"\\\x00-\x1F\x7F]{1,10}',
    r'[^"\\\x00-\x1F\x7F]{1,30}',
    r'[^"\\\x00-\x1F\x7F]+',
)
"""Text that ends at a tag, where a tag may have begun, and strings in JSON, whose lengths may be bounded."""
