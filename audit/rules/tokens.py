"""H3xx, H5xx: tokenizer and generation config against the model."""

import re
from collections.abc import Iterator

from headcount.model.divisors import listed

from .alike import such
from .folder import FolderFacts
from .rule import Sighting, rule

# Any of these is a vocabulary.
_VOCABULARIES = frozenset(
    {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "merges.txt"}
    | {"tekken.json", "sentencepiece.bpe.model", "qwen.tiktoken", "tiktoken.model", "vocab.model"}
    | {"source.spm", "target.spm", "vocab.spm", "bpe.codes", "sentencepiece.model"}
)
_SETTINGS = frozenset({"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"})
_CHAT = re.compile(r"(?:^|[-_/])(?:instruct|chat|it)(?:$|[-_.@])", re.IGNORECASE)
_TEMPLATES = frozenset({"chat_template.jinja", "chat_template.json"})
# Attributes by which a template leaves its sandbox.
_INTERNALS = re.compile(r"__(?:class|subclasses|globals|builtins|import|mro|init)__")


@rule(
    "H501",
    "no-vocabulary",
    "warning",
    "copy tokenizer.json (or tokenizer.model) from the model this was made of",
)
def no_tokenizer(facts: FolderFacts) -> Iterator[Sighting]:
    """The folder has settings of a tokenizer, and no vocabulary."""
    names = facts.files.names
    if names & _SETTINGS and not _has_vocabulary(names) and facts.config.spec.vocab_size:
        yield Sighting(
            min(names & _SETTINGS), "settings of a tokenizer whose vocabulary is not here"
        )


def _has_vocabulary(names: frozenset[str]) -> bool:
    return bool(names & _VOCABULARIES) or any(n.endswith((".tiktoken", ".spm")) for n in names)


@rule(
    "H502",
    "tokenizer-too-large",
    "warning",
    "a text with that token fails: resize the embedding, or take the right tokenizer",
)
def tokenizer_larger(facts: FolderFacts) -> Iterator[Sighting]:
    """The tokenizer has ids that the embedding has no row for."""
    size, files = facts.config.tokens, facts.files
    if size is None:
        return
    ours = f"vocab_size is {facts.config.spec.vocab_size:,}"
    if files.largest_token is not None and files.largest_token >= size:
        said = f"its largest id is {files.largest_token:,}, {ours}"
        yield Sighting("tokenizer.json", said)
    elif files.largest_special is not None and files.largest_special >= size:
        yield Sighting(
            "tokenizer.json",
            f"its largest special id is {files.largest_special:,}, {ours}",
            severity="note",
            hint="a mark for images or sound, which no text holds, needs no row of its own",
        )


@rule("H503", "unreadable-side-file", "warning", "what it says was not checked")
def unreadable(facts: FolderFacts) -> Iterator[Sighting]:
    """A side file cannot be read."""
    for file in facts.files.unreadable:
        again = "download it again; what it says was not checked" if file.is_broken else None
        yield Sighting(file.name, file.reason, hint=again)
    if facts.files.more:
        yield Sighting(
            str(facts.files.folder),
            f"{facts.files.more:,} entries were not looked at: it has more than"
            f" {len(facts.files.names):,}",
            hint="move away what is no part of the model",
        )


@rule("H505", "generation-token-outside", "warning", "correct the id in generation_config.json")
def generation_outside(facts: FolderFacts) -> Iterator[Sighting]:
    """A token of generation_config.json is not in the vocabulary."""
    size, known = facts.config.tokens, frozenset(facts.config.token_ids)
    for key, numbers in (facts.files.generation or {}).items():
        outside = [n for n in numbers if size is not None and n >= size and (key, n) not in known]
        if outside:
            more = such([key] * len(outside), "id")
            said = f"{outside[0]:,}, vocab_size is {facts.config.spec.vocab_size:,}{more}"
            yield Sighting(f"generation_config.json: {key}", said)


@rule(
    "H506",
    "different-end-of-text",
    "warning",
    "generate() follows generation_config.json; other tools follow config.json",
)
def generation_differs(facts: FolderFacts) -> Iterator[Sighting]:
    """generation_config.json does not stop at the end-of-text token of the config."""
    given = (facts.files.generation or {}).get("eos_token_id", ())
    ours = {number for key, number in facts.config.token_ids if key == "eos_token_id"}
    if given and ours and not ours & set(given):
        yield Sighting(
            "generation_config.json: eos_token_id", f"{_list(given)}; config.json has {_list(ours)}"
        )


def _list(numbers: tuple[int, ...] | set[int]) -> str:
    return listed(tuple(sorted(numbers)))


@rule(
    "H507",
    "tokenizer-longer-than-model",
    "note",
    "truncation at the tokenizer's limit does not keep texts inside the model's",
)
def longer_than_model(facts: FolderFacts) -> Iterator[Sighting]:
    """The tokenizer allows longer texts than the model has positions for."""
    tokenizer, limit = facts.files.tokenizer, facts.config.spec.max_position_embeddings
    length = tokenizer.model_max_length if tokenizer else None
    if length is not None and limit is not None and limit < length < 10**9:
        yield Sighting(
            "tokenizer_config.json: model_max_length", f"{length:,}, the model's limit is {limit:,}"
        )


@rule(
    "H508",
    "no-chat-template",
    "note",
    "chat endpoints of engines refuse such a model; copy the template",
)
def no_template(facts: FolderFacts) -> Iterator[Sighting]:
    """A model called instruct or chat has no chat template."""
    tokenizer = facts.files.tokenizer
    name = facts.files.folder.name
    if tokenizer is None or tokenizer.template or facts.files.names & _TEMPLATES:
        return
    if _CHAT.search(name):
        yield Sighting(
            "tokenizer_config.json", f"no chat template, though the model is called {name}"
        )


@rule(
    "H509",
    "no-preprocessor",
    "warning",
    "images cannot be prepared; copy preprocessor_config.json",
)
def no_processor(facts: FolderFacts) -> Iterator[Sighting]:
    """A model with a vision tower has no preprocessor config."""
    names = facts.files.names
    settings = {"preprocessor_config.json", "processor_config.json", "params.json"}
    if facts.config.vision and _has_vocabulary(names) and not names & settings:
        yield Sighting("preprocessor_config.json", "not here, though the model sees images")


@rule("H307", "template-internals", "error", "a template has no use for them: do not render it")
def template_internals(facts: FolderFacts) -> Iterator[Sighting]:
    """The chat template reaches for Python's internals."""
    tokenizer = facts.files.tokenizer
    found = _INTERNALS.search(tokenizer.template) if tokenizer and tokenizer.template else None
    if found is not None:
        yield Sighting("tokenizer_config.json: chat_template", f"holds {found[0]}")


@rule(
    "H308",
    "tokenizer-code",
    "warning",
    "it runs with trust_remote_code=True only: read it first",
)
def tokenizer_code(facts: FolderFacts) -> Iterator[Sighting]:
    """The file tokenizer_config.json names code, or grants it the right to run."""
    tokenizer = facts.files.tokenizer
    if tokenizer is None:
        return
    if tokenizer.trusts:
        yield Sighting(
            "tokenizer_config.json: trust_remote_code", "true: only the caller may say so"
        )
    for path in tokenizer.remote_code[:1]:
        yield Sighting(f"tokenizer_config.json: {path}", "names code of the model's own")


RULES = (
    template_internals,
    tokenizer_code,
    no_tokenizer,
    tokenizer_larger,
    unreadable,
    generation_outside,
    generation_differs,
    longer_than_model,
    no_template,
    no_processor,
)
