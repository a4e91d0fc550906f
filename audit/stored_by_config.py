"""The bytes that quantised weights take, by the config, where no headers are at hand."""

from typing import NamedTuple

from headcount.arch.formats.by_config import weights_by_config
from headcount.arch.formats.weight_bytes import Stored
from headcount.model.dtypes import BITS
from headcount.model.errors import UnsupportedModelError
from headcount.report.report import Fact

from .audited import Audit

_NO_SETTINGS = "what the config says of a quantisation is no object of settings"


class StoredByConfig(NamedTuple):
    """`nbytes` is None where it is not known, and `why` says then why, else how it came about."""

    nbytes: int | None
    why: str

    def fact(self) -> Fact:
        return Fact(
            key="stored_bytes",
            title="Stored",
            value="unknown" if self.nbytes is None else self.nbytes,
            unit="text" if self.nbytes is None else "bytes",
            note=self.why,
        )

    def document(self) -> dict[str, object]:
        """The object `stored` of the JSON report."""
        return {"bytes": self.nbytes, "source": "config", "why": self.why}


def stored_by_config(audit: Audit) -> StoredByConfig:
    """Of an audit that `is_weighed_by_config`."""
    bits = BITS[audit.spec.dtype] if audit.spec.dtype else 16
    try:
        found = weights_by_config(audit.config, audit.spec, wide_bits=bits)
    except UnsupportedModelError as error:
        return StoredByConfig(None, str(error))
    if found is None:
        unknown = audit.spec.parameters_unknown
        why = f"the number of parameters is not known: {unknown}" if unknown else _NO_SETTINGS
        return StoredByConfig(None, why)
    ahead = found.weights.prediction
    parts = [_share(part, found.name) for part in found.weights.stored]
    if ahead is not None:
        parts.append(f"{ahead.nbytes:,} B of layers that predict further tokens")
    total = found.weights.nbytes + (ahead.nbytes if ahead else 0)
    return StoredByConfig(total, f"by the config: {', '.join(parts)}")


def _share(part: Stored, scheme: str) -> str:
    name = part.label(scheme)
    return f"{part.parameters:,} x {float(part.bits):.4g} bit" + (f" ({name})" if name else "")
