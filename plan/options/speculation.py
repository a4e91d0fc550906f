"""Speculative decoding: what drafts tokens that the model then checks, and how many a step."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from headcount.model.errors import HeadcountError, short
from headcount.sources.catalogue import catalogue

from ..planned_model import PlannedModel
from .algorithms import ALGORITHMS, METHODS, Method
from .head_drafts import MEDUSA

# Draft by lookup, or by layers of the model's own files.
WITHOUT_MODEL = frozenset({"mtp", "ngram", "suffix"})
# Layers of their own over hidden states of several of the model's, which draft at once.
_FLASH = ("dflash", "dspark")
_MOST_TOKENS = 128  # MAX_SPEC_LEN of vllm/v1/sample/rejection_sampler.py

FindModel = Callable[[str], PlannedModel]


@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """`tokens` are drafted in each step. `draft` is the draft model, or head of EAGLE; None where
    nothing but the model itself drafts, or a log does not name it. `given` is how the user said it,
    for the command that starts it."""

    method: Method
    tokens: int
    draft: PlannedModel | None = None
    given: str = ""

    @property
    def config(self) -> str:
        """What vLLM's --speculative-config is: as given, or of what a log says of it."""
        named = {"model": "<the draft>"} if self.method not in WITHOUT_MODEL else {}
        found = {"method": self.method, "num_speculative_tokens": self.tokens, **named}
        return self.given or json.dumps(found)

    @property
    def is_eagle(self) -> bool:
        return self.method in ("eagle", "eagle3")

    @property
    def takes_hidden_states(self) -> bool:
        """Whether what drafts reads the hidden states of the model, and not tokens alone."""
        return self.is_eagle or self.method in ("mtp", *_FLASH)


def parse_speculative_config(text: str, find: FindModel) -> Speculation:
    """vLLM's --speculative-config, an object in JSON; `find` plans what its `model` names. Methods
    are told as SpeculativeConfig.__post_init__ of vllm/config/speculative.py does. Raises
    HeadcountError."""
    values = _object(text)
    name = values.get("model")
    if name is not None and not isinstance(name, str):
        raise HeadcountError(f"--speculative-config: model is {short(name)}; a name is meant")
    method = method_of(values.get("method"), name)
    draft = None
    if method not in WITHOUT_MODEL:
        if name is None:
            raise HeadcountError(f'--speculative-config: {method} needs a model: "model": NAME')
        draft = _found(find, name, method, "--speculative-config")
        values = {**values, "model": draft.model_id}  # an alias starts no engine
    return Speculation(method=method, tokens=_tokens(values), draft=draft, given=json.dumps(values))


_SPELT = {"dflash": "DFlash", "dspark": "DSpark"}


def _found(find: FindModel, name: str, method: Method, option: str) -> PlannedModel:
    """What is called `name`. The catalogue's models are whole: none is a head of EAGLE, whose
    config may name the class of a whole model, nor one of DFlash."""
    draft = find(name)
    if (draft.spec.model_type == MEDUSA) != (method == MEDUSA):
        what = "heads of Medusa" if method != MEDUSA else "no heads of Medusa"
        raise HeadcountError(f"{option}: {draft.model_id} is {what}, and method is {method}")
    if method in ("eagle", "eagle3", *_FLASH) and any(
        row.id == draft.model_id for row in catalogue()
    ):
        part = f"draft of {_SPELT[method]}" if method in _FLASH else "head of EAGLE"
        raise HeadcountError(
            f"{option}: {draft.model_id} is a whole model, and no {part}: name the one that was"
            " trained for the model, or draft with the whole one (draft_model, STANDALONE)"
        )
    return draft


def _object(text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeadcountError(f"--speculative-config is no JSON: {short(text)}") from error
    if not isinstance(values, dict):
        raise HeadcountError(
            f"--speculative-config is {short(values)}; an object is meant, as in"
            ' {"method": "mtp", "num_speculative_tokens": 2}'
        )
    return values


def method_of(asked: object, name: str | None) -> Method:
    """What vLLM makes of `asked`, and `name`, of its `method` and `model`. Without a method, EAGLE
    is known by its name; all else is a draft model. Raises HeadcountError."""
    if asked is None:
        lowered = (name or "").lower()
        if lowered in ("ngram", "[ngram]"):
            return "ngram"
        signs: tuple[tuple[str, Method], ...] = (
            ("eagle-", "eagle"),
            ("eagle3", "eagle3"),
            ("dflash", "dflash"),
            ("dspark", "dspark"),
            ("medusa", "medusa"),
        )
        return next((method for sign, method in signs if sign in lowered), "draft_model")
    known = str(asked).removeprefix("[").removesuffix("]")
    known = "mtp" if known.endswith("_mtp") else "ngram" if known == "ngram_gpu" else known
    found = next((method for method in METHODS if method == known), None)
    if found is None:
        if known == "mlp_speculator":
            raise HeadcountError(
                "--speculative-config: vLLM drafted with mlp_speculator in its V0 engine alone,"
                " until 0.10; its V1 engine ends with `Unknown speculative decoding method`: draft"
                " with eagle3, mtp, draft_model or ngram"
            )
        raise HeadcountError(
            f"--speculative-config: how much memory method {short(asked)} takes is not known; known"
            f" are {', '.join(METHODS)}"
        )
    return found


def _tokens(values: Mapping[str, Any]) -> int:
    count = values.get("num_speculative_tokens")
    if type(count) is not int or not 1 <= count <= _MOST_TOKENS:
        raise HeadcountError(
            f"--speculative-config: num_speculative_tokens is {short(count)}; a number from 1 to"
            f" {_MOST_TOKENS} is meant"
        )
    return count


DEFAULT_STEPS = 3  # of most models (auto_choose_speculative_params of sglang/srt/server_args.py)


class Algorithm(NamedTuple):
    """SGLang's options: `steps` of the draft, of each of which `topk` tokens are followed, and the
    `tokens` that are checked at once. Those that are not given are left to the engine."""

    name: str
    draft: str | None = None
    steps: int | None = None
    topk: int | None = None
    tokens: int | None = None

    def speculation(self, find: FindModel) -> Speculation:
        """`find` plans what is named; EAGLE without a draft is the model's own MTP. Raises
        HeadcountError."""
        method = ALGORITHMS[self.name]
        if method == "eagle" and self.draft is None:
            method = "mtp"
        if method not in WITHOUT_MODEL and self.draft is None:
            raise HeadcountError(
                f"--speculative-algorithm {self.name} needs --speculative-draft-model-path"
            )
        draft = None
        if self.draft and method not in WITHOUT_MODEL:
            draft = _found(find, self.draft, method, f"--speculative-algorithm {self.name}")
        tokens = self.tokens or (self.steps or DEFAULT_STEPS) + 1
        given = self._replace(draft=draft.model_id if draft else self.draft).words()
        return Speculation(method=method, tokens=tokens, draft=draft, given=given)

    def words(self) -> str:
        """The options, as a command has them."""
        values = (
            *(("algorithm", self.name), ("draft-model-path", self.draft)),
            *(("num-steps", self.steps), ("eagle-topk", self.topk)),
            ("num-draft-tokens", self.tokens),
        )
        named = (f"--speculative-{n} {quote(str(v))}" for n, v in values if v is not None)
        return " ".join(named)
