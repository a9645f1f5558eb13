"""The native core (C++, bound with nanobind)."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

class NativeError(ValueError):
    """What a file or a caller got wrong; the text names it."""

# --- GGUF ---

def catch_bus_errors() -> None:
    """From here on a GgufFile that is cut short while it is used ends in errors, not the whole process."""

def tensor_types() -> list[tuple[str, int, int, int]]:
    """(name, GGUF's number, values of a block, bytes of a block) of each type of tensor."""

class GgufMetadata:
    """What a GGUF file says of itself, completely checked, not mapped. Use puna.gguf.Metadata."""

    def __init__(self, descriptor: int) -> None: ...
    @property
    def version(self) -> int: ...
    def entries(self) -> list[tuple[str, str, str, int]]:
        """(key, type, type of an array's items, their number) of each."""
    def value(self, key: str) -> Any: ...
    def items(self, key: str) -> GgufArrayItems: ...
    def texts(self, key: str) -> GgufTexts:
        """NativeError if it is no array of strings."""
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int]]:
        """(name, type, shape fastest first, offset in the file, bytes) of each."""
    def rename_tensors(self, new_names: dict[str, str]) -> None:
        """Tensors without a new name are left out from now on. NativeError if two get the same name."""
    def join_tensors(self, name: str, matrices: list[str]) -> None:
        """A tensor of three dimensions of matrices, which stay, too. NativeError unless they are alike."""
    def add_one(self, name: str) -> None:
        """The tensor's values are read with 1 added. NativeError unless it is F32."""

class GgufArrayItems:
    """The items of an array, to be read one after the other."""

    def read(self, max_items: int) -> list[Any] | NDArray[Any]:
        """The next ones, about 1 MiB at most unless they are numbers; empty at the end."""

class GgufTexts:
    """An array of strings, as the file has it."""

    def __len__(self) -> int: ...

class GgufFile:
    """A GGUF file, mapped. Use puna.gguf.GgufFile."""

    def __init__(self, metadata: GgufMetadata, others: Sequence[int]) -> None:
        """metadata: of the file, which is not to be changed any more; others: see puna.gguf.GgufFile."""
    def data(self, name: str) -> NDArray[np.uint8]: ...
    def check_whole(self) -> None: ...
    def dequantize(self, name: str) -> NDArray[np.float32]: ...

# --- KV memory ---

class Arena:
    """Address space for a model's KV blocks, in extents; these cost memory once written, until released."""

    def __init__(
        self, num_blocks: int, block_bytes: int, extent_blocks: int = 1, extent_bytes: int | None = None
    ) -> None:
        """block_bytes: a positive multiple of 64.
        extent_bytes: what extent_blocks blocks take at least, in huge pages if it is a multiple of 2 MiB;
        None: one block. Raises NativeError if it makes no sense or does not fit.
        """
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def block(self, block_id: int) -> NDArray[np.uint8]:
        """Writable view [block_bytes] of one block; keeps the memory mapped, even after close()."""
    @property
    def extent_blocks(self) -> int: ...
    @property
    def extent_bytes(self) -> int: ...
    def commit(self, extents: Sequence[int]) -> None:
        """Brings memory for these extents now. NativeError, and none brought, if there is too little."""
    def fetch(self, extent: int) -> None:
        """Has the system bring memory for an extent before it is written, without waiting for it."""
    def release(self, extents: Sequence[int]) -> None:
        """Gives the memory of these extents back to the system; their contents are gone."""
    def close(self) -> None: ...

# --- KV blocks ---

class ReleaseClock:
    """The order in which blocks were released, over all pools that have it."""

    def __init__(self) -> None: ...

class BlockPool:
    """Which blocks of one group of layers are in use, cached or spare, and which extents are committed."""

    @property
    def num_used(self) -> int: ...
    @property
    def num_cached(self) -> int: ...
    @property
    def num_spare(self) -> int: ...
    @property
    def num_uncommitted(self) -> int:
        """Extents."""
    @property
    def num_empty(self) -> int:
        """Committed extents with spare blocks only."""
    @property
    def num_unused(self) -> int:
        """Committed extents without blocks in use."""
    @property
    def num_unused_blocks(self) -> int:
        """In these."""
    def extents_for(self, num_blocks: int) -> int:
        """Uncommitted extents that have so many blocks; one more than there are if that is too many."""
    def oldest_cached(self) -> int | None:
        """When the cached block was released that was so longest ago."""
    def commit(self, num_extents: int) -> list[int]:
        """The lowest uncommitted ones: their blocks are spare now."""
    def uncommit(self, extents: Sequence[int]) -> None:
        """Empty ones."""
    def uncommit_empty(self, at_most: int) -> list[int]:
        """The highest empty ones."""
    def num_references(self, block: int) -> int: ...
    def references(self) -> dict[int, int]:
        """How many owners each block in use has."""

class KvBlocks:
    """The KV blocks of one model. For one thread; errors of the caller are AssertionErrors."""

    def __init__(
        self,
        groups: Sequence[tuple[int, int, int, int, int, int]],
        clock: ReleaseClock,
        supply: Callable[[list[int]], bool],
        runs_low: Callable[[int], None],
        movers: Sequence[Callable[[NDArray[np.int32], NDArray[np.int32], int, int, int], None]],
    ) -> None:
        """groups: blocks, bytes of a block, blocks of an extent, bytes of an extent, window (0: none),
            whether it keeps states (0: it does not); at most the last one does.
        supply: makes so many blocks of each group spare; False: there are not so many.
        runs_low: told which group has hardly any spare blocks left, if its extents have several.
        movers: BlockMemory.move of each group.
        """
    def pool(self, group: int) -> BlockPool: ...
    def acquire(self, counts: Sequence[int]) -> list[list[int]] | None:
        """So many blocks of each group, with one reference each; None: there are not so many."""
    def retain(self, group: int, blocks: Sequence[int]) -> None:
        """Adds a reference to blocks that are in use or cached."""
    def release(self, group: int, blocks: Sequence[int]) -> None:
        """Takes a reference away; blocks without one are cached if a node has them, or else spare."""
    def evict(self, group: int) -> None:
        """Forgets the cached block that was released longest ago; there is one."""
    def evict_extents(self, before: int, spare_bytes: int, at_most: int) -> None:
        """Empties at most so many extents without blocks in use, the oldest first, as long as they are older
        than a tick of the clock and less than so many bytes are spare.
        """
    def oldest_unused(self) -> int | None:
        """When what evict_extents() would begin with was used last."""
    def drop_cached(self, at_most: int) -> bool:
        """Makes cached blocks spare, at most so many of them at once; False: none are left."""
    def check(self) -> None:
        """AssertionError unless all books are right."""

class SequenceTable:
    """The KV blocks of one sequence: of each group of layers a table, whose entry p // 16 holds the token at
    position p; of recurrent layers the state behind some number of tokens, and a block for the next one.
    Blocks have one reference for each table that holds them; see native/kv/table/sequence_table.h.
    """

    def __init__(self, kv: KvBlocks, keeps_all: bool = False) -> None:
        """keeps_all: windows do not slide."""
    @property
    def keeps_all(self) -> bool: ...
    @keeps_all.setter
    def keeps_all(self, keeps_all: bool) -> None: ...
    @property
    def num_blocks(self) -> int:
        """Entries of each group, held or not."""
    @property
    def held_bytes(self) -> int: ...
    @property
    def block_bytes(self) -> int:
        """Of one block of each group."""
    @property
    def state(self) -> int | None:
        """The block with the state of recurrent layers; None before the first token, and if it is lost."""
    @property
    def state_position(self) -> int:
        """How many tokens its state is behind; -1: it is lost."""
    @property
    def needs_state_block(self) -> bool:
        """Whether grow() must be called before the next step: there is no block to write the state to."""
    def first_held(self, group: int = 0) -> int:
        """The first entry that is held, as are all behind it."""
    def blocks(self, group: int = 0) -> list[int]:
        """Those that are held: of recurrent layers the state, and what the next step writes besides."""
    def arrays(self) -> tuple[NDArray[np.int32], ...]:
        """[num_blocks] of each group that holds tokens; 0 where nothing is held."""
    def missing_bytes(self, num_tokens: int) -> int:
        """What it takes, beside what it holds, to hold what the token behind the first `num_tokens` sees."""
    def least_bytes(self, num_tokens: int) -> int:
        """What it then holds at least: with one state, whatever it takes while others have that, too."""
    def grow(self, num_tokens: int, position: int = 0) -> bool:
        """Makes room for the first `num_tokens` tokens; False, and nothing changed, if blocks are short.

        position: of the next token that will be computed: if the table ends before what it sees in a window,
        entries before that are not held.

        With recurrent layers there is a block to write the state to, then: the present one if nobody else
        has it and the prefix tree does not know it, or else a fresh one. If memory lacks for that and nobody
        else has the present one, the tree forgets it.
        """
    def slide(self, position: int) -> None:
        """Lets go of what neither the token at `position` nor a later one sees: those before it must stay."""
    def truncate(self, num_tokens: int) -> None:
        """Keeps the first `num_tokens` tokens, gives blocks wholly beyond back.

        For tokens that nobody else can know of: the block that is cut must not be shared, nor may the prefix
        tree have recorded what is cut off. Otherwise remove() is the operation.
        """
    def release(self) -> None:
        """Gives all blocks back."""
    def stepped(self, num_tokens: int) -> None:
        """A step has ended that wrote the state behind so many tokens, where there are recurrent layers."""
    def failed(self) -> None:
        """A step has failed: a state that it was to write in place is lost."""
    def can_resume(self, num_tokens: int) -> bool:
        """Whether it has what the token behind the first `num_tokens` sees. Recurrent layers see the state
        behind so many tokens; before the first one they need none.
        """
    def fork(self, num_tokens: int) -> SequenceTable | None:
        """A second table with the first `num_tokens` tokens, behind which this one can resume.

        Full blocks are shared, the tokens of a last, partial one are copied. None if there is no block for
        them.
        """
    def remove(self, begin: int, end: int, num_tokens: int) -> bool:
        """Drops tokens [begin, end) of the first `num_tokens`; those behind them move down by end - begin.

        Blocks that change and are shared are copied, those of this table alone change in place and are
        forgotten by the prefix tree. Whatever lies behind `num_tokens` is given back. False, and nothing
        changed, if blocks are short, a window would reach what slid out of it, or there is a state. If the
        device raises, the table's KV is lost. What has moved, and what is computed behind it, never enters
        the tree.
        """

def gather_tables(tables: Sequence[SequenceTable]) -> tuple[NDArray[np.int32], ...]:
    """[S, B] of each group; 0 where nothing is held, and past a table's end. Of recurrent layers [S, 2]: the
    block with the state (-1: there is none before the first token), and the one to write; grow() saw to that.
    """

class Cursor:
    """How far the front of a sequence's table is known to the prefix tree."""

    def __init__(self, namespace: str, to_disk: bool = True) -> None:
        """to_disk: whether what is recorded or found through it may be written to a disk."""
    @property
    def num_blocks(self) -> int: ...
    @property
    def num_matched(self) -> int:
        """With recurrent layers: how many tokens of the sequence, from the first on, follow() found the KV
        of, whether or not there was a snapshot to use it with. There it parts from what is known.
        """
    @property
    def node(self) -> int | str:
        """Of the last known block; the namespace, if there is none."""

class PrefixNode:
    """A block's tokens, int32, following those of its parent. Those of leaves may be fewer than a block's."""

    @property
    def number(self) -> int:
        """Never used twice."""
    @property
    def parent(self) -> int | str:
        """Its number, or the namespace."""
    @property
    def tokens(self) -> bytes: ...
    @property
    def following(self) -> bytes:
        """The tokens of the child that was used last; empty: it has none."""
    @property
    def blocks(self) -> tuple[int, ...]:
        """Of each group; -1 where there is none any more. Those of a snapshot within a block may hold more
        tokens.
        """

class PrefixListing:
    """The nodes that may be written to a disk: those that sequences use, then those used last; none
    before what it builds on. What is recorded after it has begun is left out.
    """

    def next(self, limit: int) -> list[PrefixNode] | None:
        """About `limit` of them, perhaps none though more will follow; None: that was all."""

class UnsavedNodes:
    """The nodes that may be written to a disk and have no files yet, in the order in which they came, since
    this began. Those of shorter prefixes than `min_blocks` come once something longer builds on them.
    """

    def __init__(self, tree: PrefixTree, min_blocks: int) -> None: ...
    @property
    def num_fresh(self) -> int:
        """At most so many will be taken."""
    def take(self, limit: int) -> list[PrefixNode]:
        """At most `limit` of them, none before what it builds on; perhaps none though more will follow."""
    def put_back(self, nodes: list[PrefixNode]) -> None:
        """These have got no files after all, and come first again."""
    def forget(self) -> None:
        """Those so far come only where something new builds on them."""

class PrefixTree:
    """Finds blocks by the tokens whose KV they hold; see native/kv/tree/prefix_tree.h.

    Tokens are int32, and where they are all of a sequence, its table's first entries belong to them.
    """

    def __init__(self, kv: KvBlocks) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    def start(self, namespace: str, *, to_disk: bool = True) -> Cursor:
        """Before the first token. Only those of the namespace find what is recorded in it."""
    def follow(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32], limit: int) -> int:
        """Appends to the table, retained, the blocks with the next tokens, while at most `limit` tokens are
        covered and every group has what the token behind them sees; advances the cursor. A table that has
        other blocks behind the cursor stays as it is.

        With recurrent layers, the table goes on behind the furthest snapshot that is further than its own
        state, in place of what it has behind the cursor. Of a snapshot within a block the tokens are copied;
        where memory lacks for that, it is one at the end of a block.

        tokens: all of the sequence. Returns the number of tokens covered from the first on.
        """
    def hold(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> int:
        """With recurrent layers: appends to an empty table, retained, the full blocks that hold the tokens,
        whether or not a snapshot is there; where windows slide, none. Returns behind how many tokens
        follow() would go on.
        """
    def find_partial(
        self, cursor: Cursor, tokens: NDArray[np.int32], limit: int
    ) -> tuple[tuple[int, ...], int] | None:
        """The blocks, one of each group, behind the cursor that have most of the next tokens at their start,
        and how many these are; never more than `limit` tokens from the sequence's first on. For copying.

        They are not retained: acquiring others may evict them.
        """
    def next_key(self, cursor: Cursor, tokens: NDArray[np.int32]) -> tuple[int | str, bytes]:
        """Names the block behind the cursor with the sequence's next tokens, as far as there are any: to
        compute what has an equal key is to compute the same.
        """
    def record(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> None:
        """Makes the full blocks behind the cursor findable and advances it.

        Where other blocks with the same tokens are known, the table gets these in place of its own.
        tokens: all whose KV is in the table. Does nothing if the table's blocks up to the cursor were
        forgotten or replaced.
        """
    def record_tail(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> None:
        """As record(), and makes the partial last block findable, for find_partial().

        The table's owner may write on behind these tokens. They are recorded again by the next call.
        """
    def snapshot(self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32]) -> None:
        """As record_tail(), and makes the table's state, which is behind all of the tokens, findable: the
        table writes elsewhere from now on. Where such a one is known, the table gets that in place of its
        own.
        """
    def snapshots(self, cursor: Cursor, tokens: NDArray[np.int32]) -> list[int]:
        """How many tokens the snapshots are behind, ascending, that are on the cursor's path, and in the
        block behind it.
        """
    def age(self, cursor: Cursor, tokens: NDArray[np.int32], position: int) -> bool:
        """Makes the snapshot behind the first `position` tokens, on the cursor's path, the first to be
        evicted of all content. False: there is none, or somebody holds it.
        """
    def renew(self, cursor: Cursor, tokens: NDArray[np.int32], position: int) -> bool:
        """Makes it the last to be evicted, as if it had been let go now. False: there is none."""
    def forget(self, block: int, group: int = 0) -> None:
        """The block's content can no longer be found, nor what cannot do without it."""
    def num_recorded(self, block: int, group: int = 0) -> int:
        """Tokens at the start of the block that can be found."""
    def list_nodes(self) -> PrefixListing: ...
    def path_to(self, node: PrefixNode) -> tuple[str, bytes] | None:
        """Namespace and tokens, int32, of all that the node builds on; None: it is gone."""
    def restore_order(self, nodes: list[PrefixNode]) -> None:
        """Of nodes whose blocks somebody had for a while, none before what it builds on: cached tokens are
        evicted right before those that they build on again.
        """

# --- tokenizing ---

class WordCutter:
    """Cuts text into words, in linear time. Thread-safe."""

    def __init__(
        self, patterns: list[str], digits_in_threes: bool = False, numbers_in_threes: bool = False
    ) -> None:
        """Regular expressions, a subset of Oniguruma's that native/words/pattern.h names; NativeError for
        others. Each cuts what those before it left: matches are words, and so is what lies between them.
        digits_in_threes: after that, runs of ASCII digits, in threes counted from their end.
        numbers_in_threes: before that, runs of any digits, but what is before a run stays with its first
        ones.
        """
    def ends(self, text: bytes) -> list[int]:
        """Where each word ends. text: UTF-8, or NativeError. The GIL is released."""

class VocabularyBuilder:
    """Makes a vocabulary out of what a model file says. NativeError says what cannot be used."""

    def __init__(self, texts: list[str] | GgufTexts) -> None:
        """In the order of ids, all different; an empty one is named "[EMPTY_id]"."""
    @property
    def size(self) -> int: ...
    def find(self, text: str) -> int | None: ...
    def set_traits(self, traits: bytes) -> None:
        """Of each token: its kind and the bits of native/vocabulary/format.h. Without: all NORMAL."""
    def set_conventions(
        self,
        flags: int,
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        separator_id: int | None = None,
        unknown_id: int | None = None,
    ) -> None:
        """flags: those of native/vocabulary/format.h."""
    def byte_pairs(self, merges: list[str] | GgufTexts, word_pattern: str) -> bytes:
        """The vocabulary. merges: "left right", by rank; NativeError for one that needs what is no token.
        word_pattern: how text is cut into words. The GIL is released for most of it.
        """
    def character_pairs(self, merges: list[str] | GgufTexts, word_pattern: str) -> bytes:
        """As byte_pairs, of a vocabulary written in characters; others become bytes, "<0x0A>"."""
    def set_char_map(self, char_map: bytes) -> None:
        """What a unigram vocabulary makes of characters first, as SentencePiece compiles it. NativeError if
        it is damaged.
        """
    def unigram(self, scores: bytes, unknown_score: float) -> bytes:
        """scores: float32 of each token, finite, or -infinity if it is not to be found in text. NativeError
        for a token to be found of more than 512 bytes. unknown_score: of a character that is no token.
        """
    def sentencepiece(self, scores: bytes) -> bytes:
        """The vocabulary. scores: float32 of each token. The GIL is released for most of it."""
    def word_pieces(self) -> bytes:
        """WordPiece, words of which begin with U+2581. NativeError for a token of more than 512 bytes."""

class Vocabulary:
    """What VocabularyBuilder made, read in place; all of it is checked first, and NativeError says what is
    damaged. Thread-safe. Text is UTF-8; NativeError if it is not, or longer than 512 MiB.
    """

    def __init__(self, blob: bytes) -> None: ...
    @staticmethod
    def from_descriptor(fd: int) -> Vocabulary:
        """Maps it; fd: of memory sealed against writing, growing and shrinking. The caller keeps it."""
    @property
    def size(self) -> int: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...
    @property
    def separator_id(self) -> int | None: ...
    @property
    def conventions(self) -> int:
        """The flags."""
    @property
    def word_pattern(self) -> str:
        """ "": not of pairs."""
    def traits(self) -> bytes: ...
    def text(self, token: int) -> bytes:
        """As the file has it."""
    def token_bytes(self, token: int) -> bytes:
        """What it stands for; nothing for padding and undefined tokens."""
    def token_table(self) -> bytes:
        """Of all tokens, for TokenTable; control and unknown tokens are not shown."""
    def find(self, text: bytes) -> int | None: ...
    def find_special(self, text: bytes, parse_special: bool) -> list[tuple[int, int, int]]:
        """(first byte, byte behind the last, token) of the special tokens in a text; the longest first, among
        equally long ones the lowest id, then the leftmost. User-defined tokens are always found, control
        and unknown ones only if parse_special. The GIL is released.
        """
    def encode(
        self, text: bytes, parse_special: bool, words: WordCutter | None, is_within: bool = False
    ) -> list[int]:
        """Special tokens as in find_special; then what the vocabulary is made for. Pairs, and only they, need
        `words`; the earliest merge of the list comes first, among equals the leftmost, and bytes without
        a token are dropped. is_within: it is part of a longer text, and SentencePiece puts no space in front
        of anything. Neither BOS nor EOS is added. NativeError for wrong `words`. The GIL is released.
        """

# --- tokens to text ---

class TokenTable:
    """Which bytes each token stands for, and which are not shown. Format: native/text/token_table.h."""

    def __init__(self, blob: bytes) -> None:
        """Copies the blob. NativeError if it is not what the format says."""
    @staticmethod
    def from_descriptor(fd: int) -> TokenTable:
        """Maps a memory file that is sealed against writing and shrinking. The descriptor stays the caller's.

        NativeError if it is no such file, or its content is not what the format says.
        """
    @staticmethod
    def build(pieces: list[bytes], hidden: bytes) -> bytes:
        """The blob. pieces: the bytes of each token, by id; hidden: 1 for each token that is not shown."""
    def __len__(self) -> int: ...
    def token_bytes(self, token: int) -> bytes:
        """Also of a token that is not shown; of a token beyond the table, nothing."""

class TextStream:
    """One reply on its way from tokens to text.

    Only complete characters come out; bytes that are no UTF-8 become U+FFFD. The stop string that is
    complete first ends the reply before it, of two at the same character the longer. More than 30 tokens in
    a row that are the same but for white space around them end it, too, but still come out.
    """

    def __init__(
        self,
        table: TokenTable | None,
        stop_strings: Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        shown_tokens: Sequence[int] = (),
    ) -> None:
        """table: None: tokens have no text, and come out as they come. Empty stop strings mean nothing.
        shown_tokens: control tokens that have text all the same.
        """
    @property
    def stop_string(self) -> str:
        """The one that ended the reply; empty: none did."""

def add_tokens(
    streams: Sequence[TextStream],
    tokens: NDArray[np.int32],
    starts: NDArray[np.int32],
    num_left: Sequence[int],
) -> list[tuple[list[int], int, Literal["stop", "length"] | None, str, list[int]]]:
    """Adds what was drawn to each of the streams, which are different ones; the GIL is released meanwhile.

    tokens: stream i has drawn those of [starts[i], starts[i + 1]), of which only the last may be a stop
    token, and may have num_left[i].

    Of each stream: the tokens that belong to the reply; how many were drawn up to its end, a stop token
    included; why it ends with them; the text that may be shown now; and the tokens whose text begins in it.
    At the end what was held back comes out, with all tokens unless a stop string was found, and an
    incomplete character is dropped.
    """

# --- batches ---

def gather_rows(
    tokens: Sequence[NDArray[np.int32]],
    begins: Sequence[int],
    counts: Sequence[int],
    positions: Sequence[int],
    completes: Sequence[bool],
    drafts: Sequence[Sequence[int]],
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32] | None,
    NDArray[np.int32] | None,
]:
    """A batch's tokens, positions, sequence_starts, rows, drafts and draft_starts.

    A sequence has computed tokens[begins : begins + counts], the first of them at `positions`, and drafts
    behind them. completes: none is pending behind these, so that next ones are drawn.
    """

# --- sampling ---

class Sampler:
    """One request's sampling parameters, random sequence and recent tokens.

    NativeError names a parameter that is out of range. Off are: top_k <= 0, top_p >= 1, min_p <= 0,
    typical_p >= 1, repeat_last_n 0 (-1: all tokens), repeat_penalty 1, num_logprobs -1 (0: the chosen
    token's, n: the likeliest n too). temperature <= 0 is greedy. Ids of logit_bias beyond the vocabulary
    are ignored.
    """

    def __init__(
        self,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        typical_p: float,
        repeat_last_n: int,
        repeat_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        seed: int,
        logit_bias: dict[int, float],
        num_logprobs: int,
    ) -> None: ...
    def accept(self, token: int) -> None:
        """Counts a token of the prompt for the penalties."""
    def accept_many(self, tokens: NDArray[np.int32]) -> None: ...

class TokenMask:
    """Which tokens a row may give."""

    def __init__(self, num_tokens: int) -> None: ...
    @property
    def address(self) -> int:
        """Of uint32 words with a bit for each token, the lowest first, to be written before finish()."""
    @property
    def num_bytes(self) -> int: ...
    @property
    def only(self) -> int | None:
        """The only token that it allows; None if there are others."""
    def finish(self) -> None:
        """It is written. One without any token has failed."""
    def fail(self, error: str) -> None:
        """In place of finish(): rows that have it give no token."""
    def allows(self, token: int) -> bool: ...

class GrammarError(NativeError):
    """A grammar that cannot be compiled, or a reply that cannot go on with it; the text says why."""

class Llguidance:
    """Its C interface."""

    def __init__(self, path: str) -> None:
        """path: of its shared object, which stays loaded. Raises NativeError."""

class GrammarTokenizer:
    """A model's vocabulary as llguidance wants it. Immutable, for any thread."""

    def __init__(
        self, library: Llguidance, vocabulary: Vocabulary, words: WordCutter | None, slices: Sequence[str]
    ) -> None:
        """slices: regular expressions; tokens that match one are allowed or not as a whole. Takes a second or
        two for 262,000 tokens, without the interpreter's lock. Raises NativeError for a vocabulary in which
        no reply can end.
        """
    @property
    def num_tokens(self) -> int: ...

class CompiledGrammar:
    """For any number of replies. Immutable, for any thread."""

    def __init__(
        self,
        tokenizer: GrammarTokenizer,
        text: str,
        *,
        max_items_in_row: int,
        initial_lexer_fuel: int,
        step_lexer_fuel: int,
        step_max_items: int,
        max_lexer_states: int,
        max_grammar_size: int,
    ) -> None:
        """text: in llguidance's dialect of Lark, or its list of grammars. The limits are those of its
        ParserLimits. Works without the interpreter's lock. Raises GrammarError.
        """

class ReplyGrammar:
    """Where one reply stands in its grammar. For one thread at a time."""

    def __init__(self, compiled: CompiledGrammar, *, reply_s: float, token_s: float) -> None:
        """It may take reply_s seconds of processor time in all, and token_s more for each of its tokens."""
    def accept(self, tokens: Sequence[int]) -> None:
        """The reply goes on with these, which its masks allowed. Raises GrammarError."""
    def forced(self) -> list[int]:
        """The next tokens, as far as there is no choice; a token may be left out."""
    def num_admitted(self, drafts: Sequence[int]) -> int:
        """How many of them, from the first on, the grammar may allow; never fewer than the masks do."""

def compute_masks(replies: Sequence[ReplyGrammar], drafts: Sequence[Sequence[int]]) -> list[TokenMask]:
    """Of all replies of a step: for each, that of its next token, then those behind each of its drafts. They
    are written anew when it is asked for the next ones.

    Works without the interpreter's lock. Whatever goes wrong is told by the masks, and ends that reply alone.
    """

class SampleResult:
    """Token by token, in the samplers' order; a new array or list at each access."""

    @property
    def starts(self) -> NDArray[np.int32]:
        """[samplers + 1]: sampler i's tokens are [starts[i], starts[i + 1])."""
    @property
    def errors(self) -> dict[int, str]:
        """By sampler, why it has no token; of all others, nothing."""
    @property
    def tokens(self) -> NDArray[np.int32]: ...
    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Of the chosen tokens, in the model's own distribution; NaN where num_logprobs is -1."""
    @property
    def top_tokens(self) -> list[list[tuple[int, float]]]:
        """(token, logprob), likeliest first."""

def sample_batch(
    pool: ThreadPool,
    logits: NDArray[np.float32],
    samplers: Sequence[Sampler],
    drafts: NDArray[np.int32] | None = None,
    draft_starts: NDArray[np.int32] | None = None,
    isa: str = "auto",
    masks: Sequence[TokenMask | None] = (),
) -> SampleResult:
    """Samples logits [rows, vocabulary]; each token counts as accepted by its sampler.

    A sampler owns one row, or with drafts 1 + d consecutive ones, where its d drafts of what it will give
    are drafts[draft_starts[i] : draft_starts[i + 1]], and row j + 1 are the logits behind draft j. Rows are
    sampled one after the other until a token is not what was drafted: 1 to 1 + d tokens, exactly those that
    the rows would give one by one.

    A sampler whose first row has a NaN, or no largest logit that is finite, once it is penalized, gets no
    token, but an error; if that is a later row, it gets the tokens before it.

    masks: of each row; None: it may give anything; its logits may be overwritten with -infinity where it
    forbids them. What is not allowed counts for nothing before penalties
    and all that follows; log-probabilities stay those of the model. A token that is the only one is drawn
    whatever its logit is.

    The samplers are different ones. The instruction set decides only how fast it goes. NativeError if rows,
    samplers and drafts do not fit together.
    """

# --- speculation ---

class StepCosts:
    """How long a model's steps take, learned while it runs: seconds by number of tokens.

    Moving averages in buckets, with straight lines between them. What has not been seen for long is
    forgotten, but for the shortest and the longest steps.
    """

    def __init__(self) -> None: ...
    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step that took no time failed at once, and is not counted."""
    @property
    def fewest_tokens(self) -> float:
        """Of the steps seen, inf if there are none. Of shorter ones it is only known that they take no
        longer.
        """
    def has_seen(self, num_tokens: int) -> bool:
        """Whether steps of about that size were seen, not too long ago."""
    def estimate(self, num_tokens: int) -> float | None:
        """Seconds of a step, beyond what was seen in proportion; None while nothing is known."""

class NgramDrafter:
    """Drafts one sequence's next tokens: what followed its latest ones where the same tokens stood before.

    Takes 4 bytes for each of its tokens and 32 to 512 KiB, from when it is used.
    """

    def __init__(self, num_tokens: int = 0, stop_tokens: Sequence[int] = ()) -> None:
        """num_tokens: that the sequence is likely to have; stop_tokens end it, and are never drafted."""
    @property
    def match_length(self) -> int:
        """Tokens before the place that it drafts from which equal the sequence's last ones, up to 32."""

def draft_from_text(
    drafters: Sequence[NgramDrafter],
    tokens: Sequence[NDArray[np.int32]],
    counts: Sequence[int],
    limits: Sequence[int],
    least_chances: Sequence[float],
    num_tokens: int,
    num_decodes: int,
    costs: StepCosts,
) -> list[list[int]]:
    """The drafts of each sequence that the next step should verify, as plan_drafts() says.

    tokens: of each sequence the first `counts`, of which the drafter takes in what is new; they only ever
    grow. Of a very long prompt some are taken in at each call, and nothing is drafted before the last.
    limits: drafts of each sequence at most. least_chances: that its first draft must have to be right.
    The drafters are different ones. NativeError if the lists have different lengths.
    """

def plan_drafts(
    chances: Sequence[Sequence[float]],
    num_tokens: int,
    num_decodes: int,
    costs: StepCosts,
    round_s: float = 0.0,
) -> list[int]:
    """How many drafts of each sequence the next step should verify.

    chances: by sequence, the probability that its first 1, 2, ... drafts are all right.
    num_tokens: in the step without drafts; num_decodes: those of them that are sequences' latest tokens.
    round_s: what drafting itself takes, for one token more of all sequences.

    The drafts chosen have the largest product of all decoding sequences' rates (tokens per second): what one
    sequence gains, in percent, must be more than what the longer step costs all of them together. The time
    for the tokens of prompts in the step counts as given.
    """

# --- weights of one type to another ---

def quantize(
    pool: ThreadPool, rows: NDArray[np.uint8], source: str, target: str, isa: str = "auto"
) -> NDArray[np.uint8]:
    """Rows of bytes of the type `source` (F32, F16, BF16) to rows of `target`: any of these, or Q8_0, Q4_0,
    Q4_1, Q5_0, Q5_1, to the bit as ggml does; or Q2_K to Q6_K, nearer to the weights than ggml's.

    NativeError if there is no such quantizer, or rows are no whole numbers of blocks.
    """

def write_quantized(
    pool: ThreadPool, rows: NDArray[np.uint8], source: str, target: str, descriptor: int, offset: int
) -> None:
    """The same, into a file from `offset` on; a megabyte or two of memory per thread.

    OSError if it cannot be written; NativeError also where `target` has scales and a weight is infinite or
    not a number.
    """

# --- single kernels, for tests and measurements ---

def linear(
    file: GgufFile,
    weight: str,
    x: NDArray[np.float32],
    isa: str = "auto",
    bias: NDArray[np.float32] | None = None,
    residual: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """x [tokens, cols] times the weight [rows, cols], plus bias [rows] and residual: [tokens, rows].

    On the calling thread, the GIL released. Block-quantized weights are multiplied with x rounded to int8
    per 32 values. NativeError if shapes do not fit or the instruction set is unknown.
    """

# --- the machine ---

def ask_for_matrix_unit() -> bool:
    """Whether encoders may use a matrix unit (AMX). The system is asked once: where they are first built, if
    not before, but in a cage it grants none."""

def measure_dot_peak(pool: ThreadPool, seconds: float, isa: str = "auto") -> float:
    """Operations per second of byte dot products in registers, on all threads of the pool; takes `seconds`.

    A multiplication and an addition count as two. NativeError if the instruction set is unknown.
    """

def measure_read_bandwidth(pool: ThreadPool, num_bytes: int, seconds: float) -> float:
    """Bytes per second at which all threads of the pool read num_bytes of memory: the best of several passes.

    NativeError if there is no memory, or fewer than 4096 bytes for each thread.
    """

# --- execution ---

class PoolActivity:
    """What the threads of a pool are at."""

    @property
    def num_tasks(self) -> int:
        """Pieces of work done so far; each takes milliseconds."""
    @property
    def num_asleep(self) -> int:
        """Threads that sleep until another of them, or who calls them, has done something."""
    @property
    def cpu_seconds(self) -> list[float]:
        """Processor time of each thread; the first is who called last. 0 where the system does not tell."""

class ThreadPool:
    """The worker's threads, the caller's included. They spin for microseconds after a step, then sleep."""

    def __init__(self, num_threads: int) -> None:
        """NativeError unless 1 <= num_threads <= 1024."""
    @property
    def num_threads(self) -> int: ...
    def activity(self) -> PoolActivity:
        """From any thread."""
    def close(self) -> None:
        """Ends the threads; a later run raises NativeError."""

class ProgramBuilder:
    """Checks a graph against its file, op by op, and compiles it; NativeError names what does not fit.

    A buffer is float32 [tokens, width], or [rows, width] behind `rows`. Weights are named as in the file.
    """

    def __init__(self, file: GgufFile, isa: str = "auto", kv_type: str = "f16") -> None:
        """isa: one of cpu_info().isas, or "auto" for the best.

        kv_type: what keys and values are stored as, f16, f32, q8_0 or q4_0.
        """
    def set_encoder(self) -> None:
        """Before any op: texts are in a step as a whole, so that products may use a matrix unit."""

    def buffer(self, width: int) -> int: ...
    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        tensors: Sequence[str | None] = (),
        **attributes: int | float | str | NDArray[np.float32],
    ) -> None:
        """An op of puna/graph/ops; inputs and outputs are buffers.

        Linear takes several outputs, with a weight and a bias for each; with one, it may add a second input.
        Rope works in place. Attention may have a tensor: a score for each head [num_heads], of a position
        that has no value.
        """
    def build(self, result: int, by_window: bool = True, hidden: int = -1) -> Program:
        """result: a buffer behind `rows`. by_window: layers with windows are groups of their own. hidden: the
        buffer that run() gives hidden states from; -1: none. The builder is spent afterwards.
        """
    def begin_prediction(self, drafter: GgufFile | None = None) -> None:
        """Behind the model's own ops: what comes now are those of its prediction head.

        drafter: a file that it is in, whose tensors are named with "draft:" before their names.
        """
    def end_prediction(self, result: int, hidden: int) -> None:
        """The head's, as for build()."""

class StepControl:
    """A way for other threads to end a step that runs."""

    def __init__(self) -> None: ...
    def begin(self) -> None:
        """For who is about to run a step: until now, nobody has stopped it, nor wants it suspended."""
    def suspend_in(self, seconds: float) -> None:
        """For the same, of an encoder: after so long the step is suspended, within milliseconds."""
    def stop(self) -> None:
        """The step ends within milliseconds, as if it had never been. From any thread."""
    @property
    def is_stopped(self) -> bool: ...

class KvGroup:
    """Layers that keep the keys and values of the same tokens, and share blocks; or all recurrent layers."""

    @property
    def num_layers(self) -> int: ...
    @property
    def block_bytes(self) -> int:
        """Of a block, all of its layers: 16 tokens, or a state."""
    @property
    def window(self) -> int:
        """How many of the latest tokens a token sees, itself included; 0: all."""
    @property
    def is_state(self) -> bool:
        """Whether a block is the state of recurrent layers."""

class Adapter:
    """A LoRA adapter of a program's model. Keeps its file mapped."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes from its first run until Program.release_memory(), with what steps of 256
        tokens need for it.
        """
    def check_whole(self) -> None:
        """Raises NativeError if its file was cut short, and zeros were read instead."""

class HeadState:
    """What a prediction head goes on with behind a sequence's computed tokens, besides KV."""

    def __init__(self) -> None: ...
    def forget(self) -> None: ...

class Program:
    """A compiled graph. Keeps its file mapped."""

    @property
    def isa(self) -> str: ...
    @property
    def groups(self) -> list[KvGroup]:
        """Those of the attention layers, the one without a window first, then the widest window; then that of
        the recurrent layers.
        """
    @property
    def buffer_bytes(self) -> int:
        """Memory of the activations: what the largest step so far needed."""
    def most_scratch_bytes(self, context_length: int, num_threads: int) -> int:
        """What attention needs beside activations and KV, at most: at the end of so long a context; and what
        drafts usually need, of which a recurrent layer's inputs are kept.
        """
    def text_bytes(self, num_tokens: int, num_texts: int, num_threads: int) -> int:
        """Activations of a step of so many texts, which have so many tokens together, and what adapters that
        are loaded need beside them.
        """
    def release_memory(self) -> None:
        """Gives back the activations, and lets the system have the weights' pages; both return with the next
        run. The GIL is released.
        """
    def run(
        self,
        pool: ThreadPool,
        arenas: Sequence[Arena],
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequence_starts: NDArray[np.int32],
        block_tables: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int32],
        num_threads: int | None = None,
        control: StepControl | None = None,
        draft_starts: NDArray[np.int32] | None = None,
        hidden: NDArray[np.int32] | None = None,
        adapters: Sequence[Adapter | None] = (),
        heads: Sequence[HeadState | None] = (),
        goes_on: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """One step; arrays as in Batch, with an arena for each group. The result [len(rows), width] and the
        hidden states of rows, of `hidden` and of the other tokens with a head [n, width of theirs] are
        overwritten by the next run, keep() or predict(). None: the step was suspended; with goes_on and the
        same arguments it goes on, a run without gives it up.

        num_threads: of the pool's threads, at most; None for all. It does not change the result.
        control: may stop it: NativeError, and keys, values and states of its tokens are there or not.
        draft_starts: as in Batch. States are written as if there were no drafts: see replay().

        adapters: of each sequence, from load_adapter(); empty: none has one.

        NativeError, before anything is written, if an index cannot be followed. The GIL is released.
        """
    def keep(
        self,
        pool: ThreadPool,
        arenas: Sequence[Arena],
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequence_starts: NDArray[np.int32],
        block_tables: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int32],
        num_threads: int | None,
        draft_starts: NDArray[np.int32] | None,
        hidden: NDArray[np.int32] | None,
        heads: Sequence[HeadState | None],
        states: NDArray[np.float32],
        sample_starts: NDArray[np.int32],
    ) -> None:
        """Behind a run(), whose arguments are given again: keeps what the prediction head needs of its
        tokens, but for drafts that were wrong. states: the run's hidden states; sample_starts:
        SampleResult.starts. NativeError as for run(). The GIL is released.
        """
    def predict(
        self,
        pool: ThreadPool,
        arenas: Sequence[Arena],
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequence_starts: NDArray[np.int32],
        block_tables: Sequence[NDArray[np.int32]],
        num_threads: int | None,
        heads: Sequence[HeadState | None],
        counts: Sequence[int],
    ) -> list[list[int]]:
        """So many tokens behind the latest of each sequence, or fewer. NativeError as for run(). The GIL is
        released.
        """
    def load_adapter(self, file: GgufFile, alpha: float) -> Adapter:
        """alpha: of the file's metadata, 0: none. NativeError, naming the tensor, for what does not fit the
        model. The GIL is released.
        """
    def replay(self, pool: ThreadPool, states: Arena, sample_starts: NDArray[np.int32]) -> None:
        """Has those drafts of the last run that turned out right change the states that it wrote.

        states: the arena of these. sample_starts: SampleResult.starts. NativeError, with nothing written, if
        they are not those of the last run. The GIL is released.
        """
    @property
    def can_shift(self) -> bool:
        """Whether keys can be turned to another position: none is changed by more than one rotation."""
    def move_kv(
        self,
        pool: ThreadPool,
        group: int,
        arena: Arena,
        source: NDArray[np.int32],
        destination: NDArray[np.int32],
        source_begin: int,
        destination_begin: int,
        num_tokens: int,
    ) -> None:
        """Copies the keys and values of num_tokens tokens, of a group's layers, from one block table [B] to
        another.

        Token i goes from position source_begin + i to destination_begin + i, in ascending order; the tables
        may share blocks where tokens go down. Keys are turned by destination_begin - source_begin positions,
        and rounded again if they are stored rounded; where that is 0, not a bit changes.

        NativeError, before anything is written: a range that its table does not hold, a block that the arena
        does not, a token that would be overwritten before it is moved, a turn without can_shift. The GIL is
        released.
        """

class CpuInfo:
    """What this machine's processor can do."""

    @property
    def isa(self) -> str:
        """The instruction set that "auto" takes."""
    @property
    def isas(self) -> list[str]:
        """All with kernels for this machine, best first."""
    @property
    def features(self) -> list[str]:
        """Vector extensions of the processor that the kernels know of."""
    @property
    def logical_cpus(self) -> int: ...

def cpu_info() -> CpuInfo: ...
def json_structure(text: bytes | bytearray) -> tuple[int, int, int]:
    """(values, depth, digits) of a JSON text: values with the keys of objects, how deep arrays and objects
    lie in each other, the longest run of digits that is in no string. Of what is no JSON, no less than a
    decoder meets before it finds that out. The GIL is released.
    """

def json_floats(values: bytes | memoryview | array[float]) -> bytes:
    """An array in JSON of an array of float32, each in as few digits as tell it from other float32. Raises
    NativeError for NaN, infinity, and what is no such array.
    """
