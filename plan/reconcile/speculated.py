"""What drafts in the start that a log is of, as far as the log says it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from headcount.model.errors import HeadcountError

from ..devices import parse_device
from ..engines.added.drafts import prediction_layers
from ..engines.start_log import Setting
from ..options.algorithms import ALGORITHMS, Method
from ..options.speculation import (
    DEFAULT_STEPS,
    WITHOUT_MODEL,
    Algorithm,
    Speculation,
    method_of,
)
from ..plan import plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest
from .model import LoggedModel, find_model

_LOOKUP = ("prompt_lookup_max", "prompt_lookup_min")


class Speculated(NamedTuple):
    """`without` says why no draft's weights and cache are reckoned with, where one is needed;
    `called` is what the engine calls the method, where its config does not say it."""

    speculation: Speculation
    without: str | None = None
    called: str = ""

    @property
    def note(self) -> str:
        speculation = self.speculation
        if self.without is not None and speculation.is_eagle:
            of = f"one more layer is reckoned with, but no weights of its head: {self.without}"
        elif self.without is not None:
            of = f"the state of each is reckoned with, what drafts is not: {self.without}"
        elif speculation.draft is not None:
            of = f"the draft {speculation.draft.model_id} is reckoned with, its cache included"
        elif speculation.method == "mtp":
            of = "the state of each is reckoned with, and the layers of MTP with their weights"
        else:
            of = "the state of each is reckoned with; what drafts has no weights"
        method = self.called or json.loads(speculation.config)["method"]
        return f"the start speculates {speculation.tokens} tokens ({method}): {of}"

    def weighed(self, model: PlannedModel, request: PlanRequest, name: str) -> "Speculated":
        """Without what drafts, where that alone keeps `request`, whose field `name` says it, from
        being planned."""
        if self.speculation.method in ("ngram", "suffix"):
            return self
        given = self.speculation.given if self.called else self.speculation.config
        bare = Speculation(method="draft_model", tokens=self.speculation.tokens, given=given)
        with_drafts: dict[str, Any] = {name: self.speculation}
        without: dict[str, Any] = {name: bare}
        why = _why_not(model, replace(request, **with_drafts))
        if why is None or _why_not(model, replace(request, **without)) is not None:
            return self
        return Speculated(bare, why, self.called)


def _why_not(model: PlannedModel, request: PlanRequest) -> str | None:
    device = request.device or parse_device("1024GiB")
    try:
        plan_model(model, replace(request, device=device))
    except HeadcountError as error:
        return str(error).partition("\n")[0]
    return None


def speculated(settings: Mapping[str, Setting], target: LoggedModel) -> Speculated | None:
    """None where nothing drafts. A start whose log names neither method nor model drafts with
    layers of its own model."""
    tokens = int(settings.get("speculated") or 0)
    if not tokens:
        return None
    asked, name = settings.get("speculative_method"), settings.get("speculative_model")
    name = None if name is None else str(name)
    try:
        method = _method(asked, name, target)
    except HeadcountError as error:
        given = _config(str(asked), name, tokens)
        bare = Speculation(method="draft_model", tokens=tokens, given=given)
        return Speculated(bare, str(error).removeprefix("--speculative-config: "))
    return _known(method, name, tokens, settings, target)


def speculated_by_algorithm(
    settings: Mapping[str, Setting], target: LoggedModel
) -> Speculated | None:
    """The same where an algorithm is named: the model itself as its draft are its layers of MTP."""
    name = str(settings.get("speculative_algorithm", "")).upper()
    if not name:
        return None
    steps, topk, path = (settings.get(n) for n in ("steps", "topk", "speculative_model"))
    tokens = int(settings.get("speculated") or int(steps or DEFAULT_STEPS) + 1)
    words = Algorithm(
        name=name,
        draft=None if path is None else str(path),
        steps=None if steps is None else int(steps),
        topk=None if topk is None else int(topk),
        tokens=tokens,
    ).words()
    method: Method = ALGORITHMS.get(name, "draft_model")
    if method == "eagle" and path in (None, target.called):
        method = "mtp"
    if method in WITHOUT_MODEL:
        return Speculated(Speculation(method=method, tokens=tokens, given=words), called=name)
    bare = Speculation(method=method, tokens=tokens, given=words)
    if name not in ALGORITHMS:
        return Speculated(bare, f"how much memory {name} takes is not known", name)
    if path is None:
        return Speculated(bare, "the log does not name it", name)
    try:
        draft = replace(find_model([str(path)], None).model, model_id=str(path))
    except HeadcountError:
        return Speculated(bare, f"the log calls it {str(path)!r}, which is not known here", name)
    return Speculated(replace(bare, draft=draft), called=name)


def _known(
    method: Method,
    name: str | None,
    tokens: int,
    settings: Mapping[str, Setting],
    target: LoggedModel,
) -> Speculated:
    if method in WITHOUT_MODEL:
        own = None if name in (target.called, method) else name
        more = {key: settings[key] for key in _LOOKUP if key in settings and method == "ngram"}
        given = _config(method, own, tokens, **more)
        return Speculated(Speculation(method=method, tokens=tokens, given=given))
    if name is None:
        bare = Speculation(method=method, tokens=tokens)
        return Speculated(bare, "the log does not name it")
    given = _config(method, name, tokens)
    try:
        draft = replace(find_model([name], None).model, model_id=name)
    except HeadcountError:
        bare = Speculation(method=method, tokens=tokens, given=given)
        return Speculated(bare, f"the log calls it {name!r}, which is not known here")
    return Speculated(Speculation(method=method, tokens=tokens, draft=draft, given=given))


def _method(asked: Setting | None, name: str | None, target: LoggedModel) -> Method:
    """The model itself as its own draft is MTP where it has layers for it (hf_config_override of
    SpeculativeConfig)."""
    if asked is None and (name is None or (name == target.called and _predicts(target))):
        return "mtp"
    return method_of(asked, name)


def _predicts(target: LoggedModel) -> bool:
    return prediction_layers(target.model) > 0


def _config(method: str, name: str | None, tokens: int, **more: Setting) -> str:
    named = {} if name is None else {"model": name}
    return json.dumps({"method": method, **named, "num_speculative_tokens": tokens, **more})
