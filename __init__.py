"""headcount: counts attention heads and what they cost.

The library: `headcount.audit("gpt2")`, `plan`, `convert`, … do what the commands of these names do
and return frozen results; all that goes wrong is a `HeadcountError`. They are imported when they
are asked for (docs/library.md).
"""

# No more of the standard library than is loaded anyway: `python -m headcount` has the current
# folder on its path until __main__ takes it off, and a typing.py may lie there.
import sys

from .model.version import __version__

TYPE_CHECKING = False  # type checkers take it for true
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .library.audits import AuditedLayer, AuditedMixer, AuditResult, audit
    from .library.conversions import ConversionCheck, ConversionResult, ConvertedLayer, convert
    from .library.diffs import DiffResult, LayerDifferences, diff
    from .library.evaluations import EvaluationResult, evaluate
    from .library.explanations import ExplainedSum, ExplanationResult, explain
    from .library.head_atlases import HeadsResult, heads
    from .library.listings import (
        AuditRule,
        CatalogueModel,
        ConvertibleFamily,
        ConvertiblesResult,
        DevicesResult,
        FamiliesResult,
        KnownDevice,
        ModelFamily,
        ModelsResult,
        RulesResult,
        convertibles,
        devices,
        families,
        models,
        rules,
    )
    from .library.plans import PlanningResult, plan
    from .library.reconciliations import (
        ReconciledFigure,
        ReconciledLog,
        ReconciliationResult,
        reconcile,
    )
    from .library.result import Result
    from .library.schemas import schema
    from .library.sweeps import SweepResult, SweptLayer, SweptModel, sweep
    from .library.uptrainings import UptrainingResult, UptrainingScores, uptrain
    from .library.verifications import VerificationResult, VerifiedDifference, verify
    from .model.errors import HeadcountError
    from .report.report import Finding
else:
    ModuleType = type(sys)

__all__ = [
    "AuditResult",
    "AuditRule",
    "AuditedLayer",
    "AuditedMixer",
    "CatalogueModel",
    "ConversionCheck",
    "ConversionResult",
    "ConvertedLayer",
    "ConvertibleFamily",
    "ConvertiblesResult",
    "DevicesResult",
    "DiffResult",
    "EvaluationResult",
    "ExplainedSum",
    "ExplanationResult",
    "FamiliesResult",
    "Finding",
    "HeadcountError",
    "HeadsResult",
    "KnownDevice",
    "LayerDifferences",
    "ModelFamily",
    "ModelsResult",
    "PlanningResult",
    "ReconciledFigure",
    "ReconciledLog",
    "ReconciliationResult",
    "Result",
    "RulesResult",
    "SweepResult",
    "SweptLayer",
    "SweptModel",
    "UptrainingResult",
    "UptrainingScores",
    "VerificationResult",
    "VerifiedDifference",
    "__version__",
    "audit",
    "convert",
    "convertibles",
    "devices",
    "diff",
    "evaluate",
    "explain",
    "families",
    "heads",
    "models",
    "plan",
    "reconcile",
    "rules",
    "schema",
    "sweep",
    "uptrain",
    "verify",
]

# The public names, by the module that defines them.
_NAMES = {
    "library.audits": "AuditResult AuditedLayer AuditedMixer audit",
    "library.conversions": "ConversionCheck ConversionResult ConvertedLayer convert",
    "library.diffs": "DiffResult LayerDifferences diff",
    "library.evaluations": "EvaluationResult evaluate",
    "library.explanations": "ExplainedSum ExplanationResult explain",
    "library.head_atlases": "HeadsResult heads",
    "library.listings": (
        "AuditRule CatalogueModel ConvertibleFamily ConvertiblesResult DevicesResult "
        "FamiliesResult KnownDevice ModelFamily ModelsResult RulesResult "
        "convertibles devices families models rules"
    ),
    "library.plans": "PlanningResult plan",
    "library.reconciliations": "ReconciledFigure ReconciledLog ReconciliationResult reconcile",
    "library.result": "Result",
    "library.schemas": "schema",
    "library.sweeps": "SweepResult SweptLayer SweptModel sweep",
    "library.uptrainings": "UptrainingResult UptrainingScores uptrain",
    "library.verifications": "VerificationResult VerifiedDifference verify",
    "model.errors": "HeadcountError",
    "report.report": "Finding",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
# Functions that are called as a room of the package is: the room is both.
_ROOMS = frozenset({"audit", "convert", "evaluate", "heads", "plan", "uptrain"})


def _module(name: str) -> "Any":
    from importlib import import_module

    return import_module(f"headcount.{name}")


def _public(name: str) -> "Any":
    return getattr(_module(_HOMES[name]), name)


class _CallableRoom(ModuleType):
    # A room such as `headcount.audit`, which is also the function of its name: what help and
    # notebooks say of it is what the function does and takes, which help says of no module.
    @property
    def __doc__(self) -> str:  # type: ignore[override]
        taken = "".join(f"\n    {one}," for one in self.__signature__.parameters.values())
        return f"{self._function.__doc__}\n\n{self.__name__}({taken}\n)"

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        return self._function(*args, **kwargs)

    @property
    def _function(self) -> "Any":
        return _public(self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> "Any":
        """That of the function, as help and notebooks ask for it."""
        import inspect

        return inspect.signature(self._function)


class _Package(ModuleType):
    """The package. What imports a room puts it here, and here it becomes callable."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


def __getattr__(name: str) -> "Any":
    if name in _ROOMS:
        return _module(name)
    if name in _HOMES:
        return _public(name)
    raise AttributeError(f"module 'headcount' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
