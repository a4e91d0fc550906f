"""What drafts in the start that a log is of, as far as the log says it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from headcount.model.errors import HeadcountError

from ..devices import parse_device
from ..engines.added.drafts import prediction_layers
from ..engines.start_log import Setting
from ..options.algorithms import Method
from ..options.speculation import WITHOUT_MODEL, Speculation, method_of
from ..plan import plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest
from .model import LoggedModel, find_model

_LOOKUP = ("prompt_lookup_max", "prompt_lookup_min")


class Speculated(NamedTuple):
    """`without` says why no draft's weights and cache are reckoned with, where one is needed."""

    speculation: Speculation
    without: str | None = None

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
        method = json.loads(speculation.config)["method"]
        return f"the start speculates {speculation.tokens} tokens ({method}): {of}"

    def weighed(self, model: PlannedModel, request: PlanRequest) -> "Speculated":
        """Without what drafts, where that alone keeps `request` from being planned."""
        if self.speculation.method in ("ngram", "suffix"):
            return self
        bare = Speculation(
            method="draft_model", tokens=self.speculation.tokens, given=self.speculation.config
        )
        why = _why_not(model, replace(request, speculative_config=self.speculation))
        if why is None or _why_not(model, replace(request, speculative_config=bare)) is not None:
            return self
        return Speculated(bare, why)


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
