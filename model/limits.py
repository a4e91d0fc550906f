"""How much of a stranger's input is read, waited for and shown: one table, each limit with its
reason. docs/limits.md is this table for users.

Every parser takes its bounds from here, so that none is forgotten, and looks them up when it runs
(`limits.JSON_BYTES.most`), so that a test can lower one. Memory and time of what is allowed grow
with the bytes of the input and no faster.
"""

from pathlib import Path
from typing import Literal, NamedTuple

Beyond = Literal["refused", "left out and counted", "not read", "given up", "made later"]


class Limit(NamedTuple):
    """At most `most` of `unit`. `beyond` is what becomes of more, `advice` what a refusal says to
    do."""

    most: int
    unit: str
    reason: str
    beyond: Beyond = "refused"
    advice: str = ""

    def refusal(self, where: str | Path, found: int | None = None) -> str:
        """The sentence of an error about `where`, which has `found` of the unit; None where the
        reading stopped at the limit."""
        if found is None:
            said = f"no more than {self.most:,} {self.unit} are read"
        else:
            said = f"{found:,} {self.unit}; no more than {self.most:,} are read"
        return f"{where}: {said}{f': {self.advice}' if self.advice else ''}"


_MIB = 2**20

# Files of JSON
JSON_BYTES = Limit(
    10 * _MIB,
    "bytes",
    "a config.json has some kilobytes; the largest, with a quantiser's list of modules, 1 MiB",
    advice="a config has some kilobytes, look at what wrote this",
)
JSON_VALUES = Limit(
    1_000_000,
    "short values",
    "beyond one for every 16 bytes: a value takes up to 250 bytes of memory, however short",
    advice="no file of a model has so many, look at what wrote this",
)
TOKENIZER_BYTES = Limit(
    64 * _MIB,
    "bytes",
    "the vocabularies of 262,144 tokens take 33 MB",
    advice="a tokenizer.json has some megabytes, look at what wrote this",
)
INDEX_BYTES = Limit(
    32 * _MIB,
    "bytes",
    "a checkpoint of 200,000 tensors has an index of 20 MB; parsing takes some ten times as much",
    advice="save the model with fewer, fused tensors",
)
RECORD_BYTES = Limit(
    64 * _MIB,
    "bytes",
    "a conversion.json names each tensor of an index of 32 MiB with its origin",
    advice="name another folder",
)

JOURNAL_BYTES = Limit(
    256 * _MIB,
    "bytes",
    "a work folder's list of what it has finished: some hundred bytes for each file and tensor",
    "not read",
)
LOCK_BYTES = Limit(4096, "bytes", "a lock names one process", "not read")

# Weights
HEADER_BYTES = Limit(
    32 * _MIB,
    "bytes of header",
    "300,000 tensors; the reference reads 100 MB, which takes a Python program a gigabyte",
    advice="save the model in more files",
)
TENSORS = Limit(
    2_000_000,
    "tensors",
    "ten times the 200,000 of a mixture of 384 experts; each takes half a kilobyte",
    advice="save the model with fewer, fused tensors",
)
NAME_CHARACTERS = Limit(
    10_000,
    "characters of a tensor's name",
    "the longest have 150; names are looked at from many sides",
    advice="the file is damaged, or made to be",
)
SHARDS = Limit(
    20_000,
    "shards",
    "the largest models have 200; each is a file to open",
    advice="save the model in fewer files",
)
GGUF_KEYS = Limit(65_536, "keys", "files have a hundred")
GGUF_TENSORS = Limit(200_000, "tensors", "files have some thousand: experts are fused")
GGUF_STRINGS = Limit(
    4_000_000,
    "strings in lists",
    "tokens and merges of a vocabulary of 262,144 are 800,000",
)
GGUF_DEPTH = Limit(4, "nested lists", "files have one, huggingface.js reads 4")
GGUF_ALIGNMENT = Limit(_MIB, "bytes of alignment", "files have 32")
GGUF_DIMENSIONS = Limit(4, "dimensions", "GGML_MAX_DIMS")
GGUF_NAME_BYTES = Limit(64, "bytes of a tensor's name", "GGML_MAX_NAME")
GGUF_KEY_BYTES = Limit(65_535, "bytes of a key", "the format says so")
GGUF_LIST_ITEMS = Limit(
    4_096,
    "items of a list",
    "what says something of each layer is shorter; tokens are longer and only counted",
    "left out and counted",
)
GGUF_STRING_BYTES = Limit(
    65_536,
    "bytes of a string",
    "the longest is a chat template of some 20,000 bytes",
    "left out and counted",
)
GGUF_KEPT_BYTES = Limit(
    8 * _MIB,
    "bytes of lists and strings",
    "of all keys of a file together",
    "left out and counted",
)
GGUF_MISSING_FILES = Limit(
    100,
    "missing files of a set",
    "a file says that it is one of 65,535 in two bytes",
    advice="download the others",
)
PICKLE_BYTES = Limit(
    32 * _MIB,
    "bytes of pickle",
    "the opcodes of two thousand tensors take 200 kB; storages lie beside them",
    advice="save the model as safetensors",
)
PICKLE_OPCODES = Limit(
    500_000,
    "opcodes",
    "two thousand tensors take a fifth of it, and a second",
    advice="save the model as safetensors",
)
PICKLE_RATIO = Limit(
    100,
    "times the packed size",
    "torch does not compress: more is a bomb",
    advice="too much to read, torch does not compress",
)
PICKLE_DIMENSIONS = Limit(64, "dimensions", "torch has as many")

# What lies in a folder
FOLDER_ENTRIES = Limit(
    20_000,
    "entries of a folder",
    "a checkpoint has some hundred; a link among them takes several calls",
    "left out and counted",
)
SIDE_FILE_BYTES = Limit(
    128 * _MIB,
    "bytes",
    "a conversion copies what lies beside the weights: tokenizers have 33 MB",
    "left out and counted",
)
TEXT_BYTES = Limit(
    256 * _MIB, "bytes", "sixty million tokens, held in memory", advice="cut the text"
)

# Values of a config
LAYERS = Limit(2_000, "layers", "the deepest models have 200")
HEADS = Limit(10_000, "heads", "the widest layers have 256")
SIZE = Limit(10**9, "in a size", "vocabularies have 10^6, contexts 10^7")
LIST_ITEMS = Limit(
    10_000,
    "items of a list",
    "lists of a config speak of each layer, or of some tokens",
    advice="a list of a config speaks of each layer",
)
PATTERN_CHARACTERS = Limit(
    1_000,
    "characters of a pattern",
    "of names of modules, in settings of a quantiser: the longest have a hundred",
    advice="name the modules one by one",
)
PATTERN_WAYS = Limit(
    256,
    "alternatives of a pattern",
    "groups in a row multiply; published ones have ten",
    advice="name the modules one by one",
)
PATTERN_DEPTH = Limit(
    20,
    "brackets inside brackets",
    "of a pattern; published ones have two",
    advice="name the modules one by one",
)
GGUF_SIZE = Limit(10**7, "in a size", "as in llama.cpp's own files")

# Logs of engines
LOG_BYTES = Limit(
    256 * _MIB,
    "bytes",
    "a start takes some hundred kilobytes, the log of a server's day some hundred times that",
    "not read",
    "cut the log to the start that is meant",
)
LOG_LINE_BYTES = Limit(
    65_536, "bytes of a line", "a line of settings has four thousand", "not read"
)

# The network
CONNECT_SECONDS = Limit(5, "seconds", "until a connection stands", "given up")
READ_SECONDS = Limit(20, "seconds", "without a byte from a server", "given up")
SLOW_SECONDS = Limit(
    30,
    "seconds",
    "until an answer must have come with the least rate, headers and body",
    "given up",
)
SLOWEST = Limit(
    1024,
    "bytes a second",
    "the least rate: a line that is shared by 100 requests has some more",
    "given up",
)
ANSWER_SECONDS = Limit(
    300, "seconds", "of one answer: the longest, 4 MiB, take it at 14 KiB a second", "given up"
)
ANSWER_HEAD_BYTES = Limit(
    8 * _MIB, "bytes around a body", "of an answer: Python allows 100 headers of 64 KiB", "given up"
)
FIRST_SECONDS = Limit(
    8,
    "seconds",
    "until the Hub's first answer: a name server out of reach takes half a minute to say so",
    "given up",
)
REDIRECTS = Limit(5, "redirects", "the Hub's lead to one other server", "given up")
REQUESTS_AT_ONCE = Limit(
    100, "requests at once", "two waves for the shards of the largest models", "made later"
)
ATTEMPTS = Limit(2, "attempts", "among two hundred requests one connection breaks", "given up")
REMOTE_GGUF_BYTES = Limit(
    64 * _MIB,
    "bytes before the tensors",
    "of a GGUF file of the Hub: the longest vocabularies take a fifth of it",
)

# What the user types
NUMBER = Limit(2**63 - 1, "in a number", "the largest size that tools of the trade hold")
NUMBER_CHARACTERS = Limit(60, "characters of a number", "a size is shorter")
BATCH_SIZE = Limit(1_000_000, "sequences", "engines run some thousand at once")
PRICES_BYTES = Limit(_MIB, "bytes", "a list of prices has a line for each device")

# What is shown
TOOL_CHARACTERS = Limit(
    60_000,
    "characters of an answer of `headcount mcp`",
    "an assistant reads all of it; reports of models have some thousand",
    "left out and counted",
)
VALUE_CHARACTERS = Limit(
    120,
    "characters of a value",
    "an error quotes what it found",
    "left out and counted",
)
LINE_CHARACTERS = Limit(
    1_000,
    "characters of a line",
    "names are a stranger's",
    "left out and counted",
)
LISTED = Limit(
    40,
    "numbers of a list",
    "an error lists what can be chosen",
    "left out and counted",
)
FILES_SHOWN = Limit(
    20,
    "files beside the weights",
    "copied or not, by a conversion; conversion.json names all",
    "left out and counted",
)
FINDINGS_OF_A_RULE = Limit(
    1_000,
    "findings of one rule",
    "of 20,000 missing shards the first thousand say it all",
    "left out and counted",
)
FINDINGS_SHOWN = Limit(
    20,
    "findings of one rule",
    "or differences, in formats for people; --format json has the others",
    "left out and counted",
)


def table() -> dict[str, Limit]:
    """Every limit by its name, in the order of this file."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
