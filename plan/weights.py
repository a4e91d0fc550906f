"""The bytes of a model's weights: from headers where they are at hand, else from its parameters."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Literal

from headcount.arch.formats.by_config import Quantised
from headcount.arch.formats.weight_bytes import Stored
from headcount.arch.registry import near_types
from headcount.model.dtypes import BITS
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec

from .parallel import replicated_parameters
from .planned_model import PlannedModel
from .stored import as_loaded, quantised


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Bytes of all weights, once. `per_attention_parameter` is in bytes.

    `source`: the files' headers, the count of parameters, or that and the config's quantisation.

    `embedding_bytes` are those of an input embedding that is not also the output head: a decode
    step reads only a few of its rows.
    """

    total_bytes: int
    source: Literal["headers", "parameters", "quantised"]
    formula: str
    per_attention_parameter: Fraction
    embedding_bytes: int

    def changed(self, parameters: int) -> "Weights":
        """With so many attention parameters more, or fewer. Raises HeadcountError for weights that
        do not hold as many."""
        if parameters == 0:
            return self
        difference = ceil(parameters * self.per_attention_parameter)
        if self.total_bytes + difference < 0:
            raise HeadcountError(
                f"all weights take {self.total_bytes:,} bytes, less than the k and v projections"
                " that the config describes: they do not belong together"
            )
        sign = "+" if parameters >= 0 else "-"
        return replace(
            self,
            total_bytes=self.total_bytes + difference,
            formula=f"{self.formula} {sign} {abs(parameters):,} of k and v",
        )


def plan_weights(
    model: PlannedModel, dtype: str | None, compute_dtype: str, *, with_prediction: bool = True
) -> Weights:
    """Stored bytes unless a dtype is asked for; then, or without headers, parameters x bits, those
    of each matrix where the config quantises. A dtype of 8 bits is that of linear layers, as
    engines load it. `with_prediction`: headers, and files of quantised models, are taken with the
    layers that predict further tokens.

    Raises HeadcountError where neither headers nor a parameter count are there, or a format is not
    understood.
    """
    spec = model.spec
    if model.weights_bytes is not None and dtype is None:
        ahead = 0 if with_prediction else model.prediction_bytes
        return _from_headers(spec, BITS[compute_dtype], model.weights_bytes, ahead)
    if spec.parameters is None:
        raise HeadcountError(
            f"the number of parameters of {model.model_id} is not known, so neither are its"
            f" weights: {_described(model)}plan a folder that holds the weights, or give the count,"
            " as in --parameters 7b"
        )
    wide = wide_bits(spec, compute_dtype)
    loaded = as_loaded(model, dtype)
    stored = quantised(loaded, wide) if dtype is None or loaded is not model else None
    if stored is not None:
        return _quantised(spec, stored, wide, with_prediction=with_prediction)
    return _uniform(spec, BITS[dtype or spec.dtype or compute_dtype], spec.parameters)


def _described(model: PlannedModel) -> str:
    if not model.spec.assumed:
        return ""
    return f"{nothing_describes(model.spec.model_type or '')}; "


def nothing_describes(model_type: str) -> str:
    """What is said of a type that no lineage has."""
    near = near_types(model_type)
    offer = f" (nearest: {', '.join(near)})" if near else ""
    return f"nothing describes model_type {model_type!r}{offer}"


def wide_bits(spec: ModelSpec, compute_dtype: str) -> int:
    """Bits of what a quantised model leaves as it is."""
    return BITS[spec.dtype or compute_dtype]


@lru_cache(maxsize=64)
def rank_weights(model: PlannedModel, weights: Weights, tp: int) -> tuple[int, str]:
    """Bytes of one of `tp` ranks, a valid number for the model, and their formula.

    Weights are split evenly but for the projections of K/V heads, or of MLA's latent, that several
    ranks hold.
    """
    extra = ceil(replicated_parameters(model.spec, tp) * weights.per_attention_parameter)
    copies = f" + {extra:,} B of replicated projections" if extra else ""
    formula = f"({weights.formula}{copies}) / {tp}" if tp > 1 else weights.formula
    return -(-(weights.total_bytes + extra) // tp), formula


def _from_headers(spec: ModelSpec, compute_bits: int, weights_bytes: int, ahead: int) -> Weights:
    """Without the bytes `ahead`. The mean over all weights stands for attention where the
    parameters are known."""
    known = spec.parameters
    mean = Fraction(weights_bytes, known) if known else Fraction(compute_bits, 8)
    return Weights(
        total_bytes=weights_bytes - ahead,
        source="headers",
        formula="bytes of the tensors in the files' headers"
        + (f" - {ahead:,} B of layers that predict further tokens" if ahead else ""),
        per_attention_parameter=mean,
        embedding_bytes=0 if spec.tie_word_embeddings else ceil(_embedding(spec) * mean),
    )


def _uniform(spec: ModelSpec, bits: int, parameters: int) -> Weights:
    each = Fraction(bits, 8)
    return Weights(
        total_bytes=ceil(parameters * each),
        source="parameters",
        formula=f"{parameters:,} parameters x {bits} bit",
        per_attention_parameter=each,
        embedding_bytes=0 if spec.tie_word_embeddings else ceil(_embedding(spec) * each),
    )


def _quantised(
    spec: ModelSpec, stored: Quantised, wide_bits: int, *, with_prediction: bool
) -> Weights:
    """Each matrix in its own format."""
    found = stored.weights
    terms = [_term(part, stored.name) for part in found.stored]
    ahead = found.prediction if with_prediction else None
    if ahead is not None:
        terms.append(f"{ahead.nbytes:,} B of layers that predict further tokens")
    attention = found.attention
    return Weights(
        total_bytes=found.nbytes + (ahead.nbytes if ahead else 0),
        source="quantised",
        formula=" + ".join(terms),
        per_attention_parameter=attention.bits / 8 if attention else Fraction(wide_bits, 8),
        embedding_bytes=0 if spec.tie_word_embeddings else found.embedding_bytes,
    )


def _term(part: Stored, scheme: str) -> str:
    name, bits = part.label(scheme), f"{float(part.bits):.4g} bit"
    if name is None:
        return f"{part.parameters:,} x {bits}"
    return f"{part.parameters:,} parameters x {bits} ({name})"


def _embedding(spec: ModelSpec) -> int:
    return (spec.vocab_size or 0) * spec.hidden_size
